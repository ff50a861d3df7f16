/** What those who ask for a run are told: why there is no result, or the result of the run that an earlier request with their key has begun. */
import type { RunResult } from "../agents/run/run.ts";
import { hearing } from "../agents/stream/raw.ts";
import { ResultSink } from "../agents/stream/result.ts";
import { ServiceError, unavailable } from "../lib/errors.ts";
import type { EventProducer } from "../lib/event-sink.ts";

export class RunIdTaken extends ServiceError {
  constructor(id: string) {
    super("conflict", `options.runId: ${JSON.stringify(id)} is taken`);
  }
}

export const runCancelled = () => new ServiceError("conflict", "the run was cancelled");

export const runInterrupted = (id: string) =>
  unavailable("the run has been interrupted: it goes on when the server is back", 1, { runId: id });

/**
 * Resolves when the run has come to rest, wherever it goes on.
 *
 * @param follow all its events
 * @throws ServiceError when it failed or was cancelled
 */
export async function earlierResult(follow: EventProducer, runId: string): Promise<RunResult> {
  const sink = new ResultSink();
  await follow(hearing((part) => sink.part(part)));
  const { end, result } = sink;
  if (end?.type === "error") throw new ServiceError("provider_failed", end.error);
  if (end?.type === "abort") throw runCancelled();
  return end === null ? { ...result, finishReason: "tool-calls", runId } : result;
}
