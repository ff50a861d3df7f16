/**
 * The history of an agent's runs, with their input and output. The files beside this one store it in memory or in the store, where it has
 * these rows:
 *
 *   h/AGENT/#startTime/RUN         -> a run as the agent's history gives it
 *   hu/AGENT/USER/#startTime/RUN   the runs of a user, where stored objects belong to users
 *   ho/RUN                         -> a running run: the key of its row, its process, and when it was last known to run
 *   n/h/AGENT, n/hu/AGENT/USER     counters of the rows of an agent, and of a user among them
 */
import type { HistoryEntry, HistoryPage } from "../../../generated/types.ts";
import { storedTime } from "../../lib/clock.ts";
import { ServiceError } from "../../lib/errors.ts";
import type { Serialized } from "../../lib/serialized.ts";
import { encodeNumber, encodeText } from "../../storage/keys.ts";
import type { MemorySettings } from "../run/options.ts";
import type { Usage } from "../run/parts.ts";
import type { RunResult } from "../run/run.ts";

// Fails at the first character. V8 flattens a string before it matches it, which is the purpose.
const FLATTENING = /^\0/;

/** Prefix of the runs of an agent: of all, or of one user. */
export const runRows = (agent: string, user?: string): string =>
  user === undefined ? `h/${encodeText(agent)}/` : `hu/${encodeText(agent)}/${encodeText(user)}/`;
/** The rest of a row of either. */
export const runEntry = (startTime: number, run: string): string => `${encodeNumber(startTime)}/${encodeText(run)}`;
/** The counter of the rows with that prefix. */
export const runTotal = (runRows: string): string => `n/${runRows.slice(0, -1)}`;
/** Prefix of the runs of all agents. */
export const HISTORIES = "h/";
export const OPEN_RUNS = "ho/";
export const openRunKey = (run: string): string => OPEN_RUNS + encodeText(run);

type RunStatus = HistoryEntry["status"];
export type FinalStatus = Exclude<RunStatus, "running">;

/** One run. Times are milliseconds since 1970. */
export interface HistoryRun {
  readonly id: string;
  readonly input: unknown;
  readonly userId: string | undefined;
  readonly conversationId: string | undefined;
  readonly startTime: number;
  /** Undefined for a run that is not traced. */
  readonly traceId: string | undefined;
  /** Approximate number of characters of input and output. */
  size: number;
  /** Private to the implementation: the number in the ring buffer, or whether the run has a row in the store. */
  position: number;
  endTime: number;
  status: RunStatus;
  output: unknown;
  usage: Usage | undefined;
  /** The model that answered last; empty until one has answered. */
  model: string;
  error: string | undefined;
}

export interface History {
  /** Records the start of a run, by default at the current time; it is visible at once. */
  begin(id: string, input: unknown, memory: MemorySettings, traceId?: string, startTime?: number): HistoryRun;
  /**
   * Records how a run ended, with its result so far. `error` is what was thrown. Returns a promise only when the store
   * cannot keep up: then the run must await it.
   */
  end(run: HistoryRun, status: FinalStatus, outcome: RunResult, error?: unknown): Promise<void> | undefined;
  /**
   * A page of runs, newest first; `page` counts from 0.
   *
   * @param owner only runs of this user; an empty string means anonymous runs, undefined all runs
   */
  page(page: number, limit: number, owner?: string): HistoryPage | Promise<Serialized>;
}

/** The histories of all agents, and their life cycle. */
export interface AgentHistories {
  forAgent(agentId: string): History;
  /** Closes runs that an earlier process left open, and starts deleting old runs. */
  start(): Promise<void>;
  /** Resolves when everything that was recorded is stored. */
  close(): Promise<void>;
}

export function beginHistoryRun(
  id: string,
  input: unknown,
  { userId, conversationId }: MemorySettings,
  traceId: string | undefined,
  startTime: number = storedTime(),
): HistoryRun {
  return {
    id,
    input,
    userId,
    conversationId,
    startTime,
    traceId,
    size: estimateSize(input, 0),
    position: 0,
    endTime: 0,
    status: "running",
    output: undefined,
    usage: undefined,
    model: "",
    error: undefined,
  };
}

export function endHistoryRun(run: HistoryRun, status: FinalStatus, outcome: RunResult, error: unknown): void {
  run.endTime = storedTime();
  run.status = status;
  run.output = outcome.output ?? flatten(outcome.text);
  run.usage = outcome.usage;
  run.model = outcome.model;
  run.size += outcome.text.length;
  if (error !== undefined) run.error = error instanceof ServiceError ? error.message : "internal error";
}

export function historyEntry(agentId: string, run: HistoryRun): HistoryEntry {
  const entry: Record<string, unknown> = {
    id: run.id,
    agentId,
    status: run.status,
    startTime: new Date(run.startTime).toISOString(),
    input: run.input,
  };
  if (run.traceId !== undefined) entry.traceId = run.traceId;
  if (run.status !== "running") {
    entry.endTime = new Date(run.endTime).toISOString();
    entry.output = run.output;
    entry.usage = run.usage;
    if (run.model !== "") entry.model = run.model;
  }
  if (run.userId !== undefined) entry.userId = run.userId;
  if (run.conversationId !== undefined) entry.conversationId = run.conversationId;
  if (run.error !== undefined) entry.error = run.error;
  return entry as unknown as HistoryEntry;
}

/**
 * Flattens a string: one that was built by concatenation keeps all its pieces in memory until it is matched against any pattern.
 */
function flatten(text: string): string {
  FLATTENING.test(text);
  return text;
}

/** The approximate number of characters in a value. */
function estimateSize(value: unknown, depth: number): number {
  if (typeof value === "string") return value.length;
  if (typeof value !== "object" || value === null || depth > 32) return 8;
  let size = 16;
  for (const key in value) size += estimateSize((value as Record<string, unknown>)[key], depth + 1);
  return size;
}

// Keeps the last runs of each agent in memory: the history of services whose store is volatile.

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
