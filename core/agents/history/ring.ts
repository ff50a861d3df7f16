/** Keeps the last runs of each agent in memory: the history of services whose store is volatile. */
import type { HistoryEntry, HistoryPage } from "../../../generated/types.ts";
import type { MemorySettings } from "../run/options.ts";
import type { RunResult } from "../run/run.ts";
import {
  type AgentHistories,
  beginHistoryRun,
  endHistoryRun,
  type FinalStatus,
  type History,
  type HistoryRun,
  historyEntry,
} from "./history.ts";

const MAX_RUNS = 1000;
/** Characters of input and output of all agents: thousands of runs with large files must not fill the memory. */
const MAX_CONTENT = 4 * 1024 * 1024;

/** Creates the histories, which share `MAX_CONTENT`. An agent that is compiled again keeps its history. */
export function ringHistories(): AgentHistories {
  const rings = new Map<string, RingHistory>();
  return {
    forAgent(agentId) {
      const known = rings.get(agentId);
      if (known !== undefined) return known;
      const ring = new RingHistory(agentId, MAX_CONTENT);
      rings.set(agentId, ring);
      for (const each of rings.values()) each.maxContent = Math.floor(MAX_CONTENT / rings.size);
      return ring;
    },
    start: async () => {},
    close: async () => {},
  };
}

export class RingHistory implements History {
  readonly #agentId: string;
  /** Characters of input and output that this agent may keep, from its next run on. */
  maxContent: number;
  /** A ring buffer: run number n is at n modulo its length. */
  readonly #ring: (HistoryRun | undefined)[] = new Array(MAX_RUNS).fill(undefined);
  /** Numbers of the oldest run in the buffer, and of the next run. */
  #oldest = 0;
  #next = 0;
  #size = 0;

  constructor(agentId: string, maxContent: number) {
    this.#agentId = agentId;
    this.maxContent = maxContent;
  }

  begin(id: string, input: unknown, memory: MemorySettings, traceId?: string, startTime?: number): HistoryRun {
    if (this.#next - this.#oldest === MAX_RUNS) this.#dropOldest();
    const run = beginHistoryRun(id, input, memory, traceId, startTime);
    run.position = this.#next++;
    this.#ring[run.position % MAX_RUNS] = run;
    this.#addSize(run.size);
    return run;
  }

  end(run: HistoryRun, status: FinalStatus, outcome: RunResult, error?: unknown): undefined {
    const before = run.size;
    endHistoryRun(run, status, outcome, error);
    if (run.position >= this.#oldest) this.#addSize(run.size - before);
  }

  page(page: number, limit: number, owner?: string): HistoryPage {
    if (owner !== undefined) return this.#pageOfOwner(page, limit, owner);
    const entries: HistoryEntry[] = [];
    const newest = this.#next - 1 - page * limit;
    for (let number = newest; number > newest - limit && number >= this.#oldest; number--) {
      entries.push(historyEntry(this.#agentId, this.#ring[number % MAX_RUNS]!));
    }
    return { entries, total: this.#next - this.#oldest, page, limit };
  }

  #pageOfOwner(page: number, limit: number, owner: string): HistoryPage {
    const entries: HistoryEntry[] = [];
    let total = 0;
    for (let number = this.#next - 1; number >= this.#oldest; number--) {
      const run = this.#ring[number % MAX_RUNS]!;
      if ((run.userId ?? "") !== owner) continue;
      if (total >= page * limit && entries.length < limit) entries.push(historyEntry(this.#agentId, run));
      total++;
    }
    return { entries, total, page, limit };
  }

  #addSize(size: number): void {
    this.#size += size;
    while (this.#size > this.maxContent && this.#oldest < this.#next - 1) this.#dropOldest();
  }

  #dropOldest(): void {
    const slot = this.#oldest++ % MAX_RUNS;
    this.#size -= this.#ring[slot]!.size;
    this.#ring[slot] = undefined;
  }
}
