/** The last runs of each agent, kept in the process: for the store that keeps nothing itself. */
import type { HistoryEntry, HistoryPage } from "../../../generated/types.ts";
import type { MemorySettings } from "../run/options.ts";
import type { RunResult } from "../run/run.ts";
import {
  beginHistoryRun,
  type Ended,
  endHistoryRun,
  type History,
  type HistoryOfAgents,
  type HistoryRun,
  historyEntry,
} from "./history.ts";

const KEPT = 1000;
/** Characters of content kept for all agents: thousands of runs over large files must not fill the memory. */
const CONTENT = 64 * 1024 * 1024;

/** @param agents how many share the space for content */
export function ringHistories(agents: number): HistoryOfAgents {
  const share = Math.floor(CONTENT / Math.max(1, agents));
  return { of: (agentId) => new RingHistory(agentId, share), start: async () => {}, close: async () => {} };
}

export class RingHistory implements History {
  readonly #agentId: string;
  readonly #content: number;
  /** A ring: run number n is at n modulo its length. */
  readonly #ring: (HistoryRun | undefined)[] = new Array(KEPT).fill(undefined);
  /** Numbers of the oldest run that is kept, and of the next one. */
  #oldest = 0;
  #next = 0;
  #size = 0;

  /** @param content characters of content that this agent may keep */
  constructor(agentId: string, content: number) {
    this.#agentId = agentId;
    this.#content = content;
  }

  begin(id: string, input: unknown, memory: MemorySettings, traceId?: string): HistoryRun {
    if (this.#next - this.#oldest === KEPT) this.#forget();
    const run = beginHistoryRun(id, input, memory, traceId);
    run.place = this.#next++;
    this.#ring[run.place % KEPT] = run;
    this.#grow(run.size);
    return run;
  }

  end(run: HistoryRun, status: Ended, outcome: RunResult, error?: unknown): undefined {
    const before = run.size;
    endHistoryRun(run, status, outcome, error);
    if (run.place >= this.#oldest) this.#grow(run.size - before);
  }

  page(page: number, limit: number, owner?: string): HistoryPage {
    if (owner !== undefined) return this.#own(page, limit, owner);
    const entries: HistoryEntry[] = [];
    const newest = this.#next - 1 - page * limit;
    for (let number = newest; number > newest - limit && number >= this.#oldest; number--) {
      entries.push(historyEntry(this.#agentId, this.#ring[number % KEPT]!));
    }
    return { entries, total: this.#next - this.#oldest, page, limit };
  }

  #own(page: number, limit: number, owner: string): HistoryPage {
    const entries: HistoryEntry[] = [];
    let total = 0;
    for (let number = this.#next - 1; number >= this.#oldest; number--) {
      const run = this.#ring[number % KEPT]!;
      if ((run.userId ?? "") !== owner) continue;
      if (total >= page * limit && entries.length < limit) entries.push(historyEntry(this.#agentId, run));
      total++;
    }
    return { entries, total, page, limit };
  }

  #grow(size: number): void {
    this.#size += size;
    while (this.#size > this.#content && this.#oldest < this.#next - 1) this.#forget();
  }

  #forget(): void {
    const slot = this.#oldest++ % KEPT;
    this.#size -= this.#ring[slot]!.size;
    this.#ring[slot] = undefined;
  }
}
