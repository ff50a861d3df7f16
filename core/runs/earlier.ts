/** A run that an earlier request with the same key has begun: its reply is made of what is recorded of it. */

import type { AgentPart } from "../agents/run/parts.ts";
import type { RunResult } from "../agents/run/run.ts";
import { ResultSink } from "../agents/stream/result.ts";
import { ServiceError } from "../lib/errors.ts";
import type { EventProducer } from "../lib/event-sink.ts";
import { runCancelled } from "./errors.ts";

/**
 * Resolves when the run has come to rest, wherever it goes on.
 *
 * @param follow all its events
 * @throws ServiceError when it failed or was cancelled
 */
export async function earlierResult(follow: EventProducer, runId: string): Promise<RunResult> {
  const sink = new ResultSink();
  await follow({
    open() {},
    send: (json) => sink.part(JSON.parse(json) as AgentPart),
    closed: false,
    onLeave() {},
  });
  const { end, result } = sink;
  if (end?.type === "error") throw new ServiceError("provider_failed", end.error);
  if (end?.type === "abort") throw runCancelled();
  return end === null ? { ...result, finishReason: "tool-calls", runId } : result;
}
