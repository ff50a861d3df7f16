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
import { encodeNumber, encodeText } from "../../storage/encoding.ts";
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
