/**
 * The last runs of an agent, kept in the process until there is storage for them: the caller's record, with its content.
 */
import type { HistoryEntry, HistoryPage } from "../../generated/types.ts";
import { ServiceError } from "../errors.ts";
import type { MemorySettings } from "./options.ts";
import type { Usage } from "./parts.ts";
import type { RunOutcome } from "./run.ts";

const KEPT = 1000;
/** Characters of content kept for all agents: thousands of runs over large files must not fill the memory. */
export const HISTORY_CONTENT = 64 * 1024 * 1024;

// Fails at the first character: it is there for what the engine does before it looks.
const WHOLE = /^\0/;

type Status = HistoryEntry["status"];

/** One run. Times are milliseconds since 1970. */
export interface HistoryRun {
  readonly id: string;
  readonly input: unknown;
  readonly userId: string | undefined;
  readonly conversationId: string | undefined;
  readonly startTime: number;
  /** Counts the runs of the agent. */
  readonly sequence: number;
  /** Characters of content, roughly. */
  size: number;
  endTime: number;
  status: Status;
  output: unknown;
  usage: Usage | undefined;
  error: string | undefined;
}

export class History {
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

  /** Records a run that has begun; it is visible at once. */
  begin(id: string, input: unknown, memory: MemorySettings): HistoryRun {
    if (this.#next - this.#oldest === KEPT) this.#forget();
    const { userId, conversationId } = memory;
    const run: HistoryRun = {
      id,
      input,
      userId,
      conversationId,
      startTime: Date.now(),
      sequence: this.#next++,
      size: 0,
      endTime: 0,
      status: "running",
      output: undefined,
      usage: undefined,
      error: undefined,
    };
    this.#ring[run.sequence % KEPT] = run;
    this.#grow(run, sizeOf(input, 0));
    return run;
  }

  /** Records how it ended, and what had come of it by then. `error` is what was thrown. */
  end(run: HistoryRun, status: Exclude<Status, "running">, outcome: RunOutcome, error?: unknown): void {
    run.endTime = Date.now();
    run.status = status;
    run.output = outcome.output ?? flat(outcome.text);
    run.usage = outcome.usage;
    if (error !== undefined) run.error = error instanceof ServiceError ? error.message : "internal error";
    if (run.sequence >= this.#oldest) this.#grow(run, outcome.text.length);
  }

  /** Newest first; `page` counts from 0. */
  page(page: number, limit: number): HistoryPage {
    const entries: HistoryEntry[] = [];
    const newest = this.#next - 1 - page * limit;
    for (let number = newest; number > newest - limit && number >= this.#oldest; number--) {
      entries.push(entryOf(this.#agentId, this.#ring[number % KEPT]!));
    }
    return { entries, total: this.#next - this.#oldest, page, limit };
  }

  #grow(run: HistoryRun, size: number): void {
    run.size += size;
    this.#size += size;
    while (this.#size > this.#content && this.#oldest < this.#next - 1) this.#forget();
  }

  #forget(): void {
    const slot = this.#oldest++ % KEPT;
    this.#size -= this.#ring[slot]!.size;
    this.#ring[slot] = undefined;
  }
}

function entryOf(agentId: string, run: HistoryRun): HistoryEntry {
  const entry: Record<string, unknown> = {
    id: run.id,
    agentId,
    status: run.status,
    startTime: new Date(run.startTime).toISOString(),
    input: run.input,
    traceId: run.id,
  };
  if (run.status !== "running") {
    entry.endTime = new Date(run.endTime).toISOString();
    entry.output = run.output;
    entry.usage = run.usage;
  }
  if (run.userId !== undefined) entry.userId = run.userId;
  if (run.conversationId !== undefined) entry.conversationId = run.conversationId;
  if (run.error !== undefined) entry.error = run.error;
  return entry as unknown as HistoryEntry;
}

/** Roughly how many characters a value holds. */
function sizeOf(value: unknown, depth: number): number {
  if (typeof value === "string") return value.length;
  if (typeof value !== "object" || value === null || depth > 32) return 8;
  let size = 16;
  for (const key in value) size += sizeOf((value as Record<string, unknown>)[key], depth + 1);
  return size;
}

/** A text that grew piece by piece keeps all of its pieces until something needs it whole, as a pattern does. */
function flat(text: string): string {
  WHOLE.test(text);
  return text;
}
