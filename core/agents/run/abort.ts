/** A run that ended because nobody waits for it any more. */
import type { RunCall } from "../agent.ts";
import type { PartSink } from "./parts.ts";

/** Thrown inside a run whose reader is gone. It is never an error of the service. */
export class Aborted extends Error {
  override readonly name = "AbortError";
  constructor() {
    super("the client has left");
  }
}

/** Whether a run that threw did so because it was stopped. */
export function wasStopped(error: unknown, call: RunCall, sink: PartSink): boolean {
  return error instanceof Aborted || sink.closed || call.signal.aborted;
}
