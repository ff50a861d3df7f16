/** How runs end whose client has left or whose request was aborted. */

import type { RunCall } from "./caller.ts";
import type { PartSink } from "./parts.ts";

/** Thrown inside a run whose reader is gone. It is never reported as an error. */
export class Aborted extends Error {
  override readonly name = "AbortError";
  constructor() {
    super("the client has left");
  }
}

/** Whether a run failed only because it was stopped. */
export function wasAborted(error: unknown, call: RunCall, sink: PartSink): boolean {
  return error instanceof Aborted || sink.closed || call.signal.aborted;
}
