/** Traces that have begun and not ended. A linked list: nothing is looked up, and nothing allocated, for the many that end at once. */
import type { TraceData } from "../observability/sink.ts";

export class OpenTraces {
  #newest: TraceData | null = null;

  add(trace: TraceData): void {
    trace.older = this.#newest;
    if (this.#newest !== null) this.#newest.newer = trace;
    this.#newest = trace;
  }

  remove(trace: TraceData): void {
    const { newer, older } = trace;
    if (newer !== null) newer.older = older;
    else if (this.#newest === trace) this.#newest = older;
    if (older !== null) older.newer = newer;
    trace.newer = null;
    trace.older = null;
  }

  /** The newest first. To be read in one go. */
  *[Symbol.iterator](): Generator<TraceData> {
    for (let trace = this.#newest; trace !== null; trace = trace.older) yield trace;
  }
}
