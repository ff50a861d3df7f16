/** The traces that have not ended yet: a linked list, so that adding and removing one needs no lookup and no allocation. */
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

  /** Yields the newest first. The list must not change during the iteration. */
  *[Symbol.iterator](): Generator<TraceData> {
    for (let trace = this.#newest; trace !== null; trace = trace.older) yield trace;
  }
}
