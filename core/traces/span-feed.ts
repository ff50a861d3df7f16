/** What the tracer is given: everything goes to the recorder, and single spans to whoever listens at the moment. */
import type { SpanData, SpanSink, TraceData } from "../observability/sink.ts";
import type { Recorder } from "./recorder.ts";

/** Called while the run goes on: to be quick, and not to throw. */
export type SpanListener = (type: "span:start" | "span:end", span: SpanData, trace: TraceData) => void;

export class SpanFeed implements SpanSink {
  live = false;
  readonly #recorder: Recorder;
  readonly #listeners = new Set<SpanListener>();

  constructor(recorder: Recorder) {
    this.#recorder = recorder;
  }

  /** @returns ends it */
  listen(listener: SpanListener): () => void {
    this.#listeners.add(listener);
    this.live = true;
    return () => {
      this.#listeners.delete(listener);
      this.live = this.#listeners.size > 0;
    };
  }

  began(trace: TraceData): void {
    this.#recorder.began(trace);
  }

  started(trace: TraceData, span: SpanData): void {
    for (const listener of this.#listeners) listener("span:start", span, trace);
  }

  ended(trace: TraceData, span: SpanData): void {
    for (const listener of this.#listeners) listener("span:end", span, trace);
  }

  take(trace: TraceData, spans: readonly SpanData[], last: boolean): void {
    this.#recorder.take(trace, spans, last);
  }
}
