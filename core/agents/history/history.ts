/** The record of an agent's runs: the caller's, with its content. Where it is kept is in the files beside this one. */

import type { HistoryEntry, HistoryPage } from "../../../generated/types.ts";
import { storedTime } from "../../lib/clock.ts";
import { ServiceError } from "../../lib/errors.ts";
import type { Serialized } from "../../lib/serialized.ts";
import type { MemorySettings } from "../run/options.ts";
import type { Usage } from "../run/parts.ts";
import type { RunResult } from "../run/run.ts";

// Fails at the first character: it is there for what the engine does before it looks.
const WHOLE = /^\0/;

export type Status = HistoryEntry["status"];
export type Ended = Exclude<Status, "running">;

/** One run. Times are milliseconds since 1970. */
export interface HistoryRun {
  readonly id: string;
  readonly input: unknown;
  readonly userId: string | undefined;
  readonly conversationId: string | undefined;
  readonly startTime: number;
  /** Undefined for a run that is not traced. */
  readonly traceId: string | undefined;
  /** Characters of content, roughly. */
  size: number;
  /** For whoever keeps it: where, or whether it has been written. */
  place: number;
  endTime: number;
  status: Status;
  output: unknown;
  usage: Usage | undefined;
  error: string | undefined;
}

export interface History {
  /** Records a run that has begun; it is visible at once. */
  begin(id: string, input: unknown, memory: MemorySettings, traceId?: string): HistoryRun;
  /**
   * Records how it ended, and what had come of it by then. `error` is what was thrown. A promise only when the record
   * cannot keep up: await it.
   */
  end(run: HistoryRun, status: Ended, outcome: RunResult, error?: unknown): Promise<void> | undefined;
  /**
   * Newest first; `page` counts from 0.
   *
   * @param owner whose runs alone are shown; an empty string: those of nobody. Undefined: everybody's
   */
  page(page: number, limit: number, owner?: string): HistoryPage | Promise<Serialized>;
}

/** A history of all agents, as boot starts and ends it. */
export interface HistoryOfAgents {
  of(agentId: string): History;
  /** Settles what an earlier process left open, and begins to forget what is too old. */
  start(): Promise<void>;
  /** Nothing that was recorded is lost after it. */
  close(): Promise<void>;
}

export function beginHistoryRun(
  id: string,
  input: unknown,
  { userId, conversationId }: MemorySettings,
  traceId: string | undefined,
): HistoryRun {
  return {
    id,
    input,
    userId,
    conversationId,
    startTime: storedTime(),
    traceId,
    size: sizeOf(input, 0),
    place: 0,
    endTime: 0,
    status: "running",
    output: undefined,
    usage: undefined,
    error: undefined,
  };
}

export function endHistoryRun(run: HistoryRun, status: Ended, outcome: RunResult, error: unknown): void {
  run.endTime = storedTime();
  run.status = status;
  run.output = outcome.output ?? flat(outcome.text);
  run.usage = outcome.usage;
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
  }
  if (run.userId !== undefined) entry.userId = run.userId;
  if (run.conversationId !== undefined) entry.conversationId = run.conversationId;
  if (run.error !== undefined) entry.error = run.error;
  return entry as unknown as HistoryEntry;
}

/** A text that grew piece by piece keeps all of its pieces until something needs it whole, as a pattern does. */
function flat(text: string): string {
  WHOLE.test(text);
  return text;
}

/** Roughly how many characters a value holds. */
function sizeOf(value: unknown, depth: number): number {
  if (typeof value === "string") return value.length;
  if (typeof value !== "object" || value === null || depth > 32) return 8;
  let size = 16;
  for (const key in value) size += sizeOf((value as Record<string, unknown>)[key], depth + 1);
  return size;
}
