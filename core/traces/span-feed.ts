/** The sink of the tracer: passes everything to the recorder, and single spans to the sockets that follow them. */
import { Feed } from "../http/feed.ts";
import type { SpanData, TraceData } from "../observability/sink.ts";
import type { Recorder } from "./recorder.ts";
import type { Origin } from "./segment.ts";
import { iso, spanRecord } from "./wire.ts";

/** The newest spans are kept for sockets that are behind. */
const MAX_KEPT_SPANS = 1024;

/** A span that has started or ended. */
export class SpanNews {
  readonly type: "span:start" | "span:end";
  /** The span as it was at that time. */
  readonly span: SpanData;
  readonly userId: string | null;
  readonly #origin: Origin;
  #text: Uint8Array | null = null;

  constructor(type: SpanNews["type"], span: SpanData, userId: string | null, origin: Origin) {
    this.type = type;
    this.span = span;
    this.userId = userId;
    this.#origin = origin;
  }

  /** The message for all followers, made once when the first one needs it. */
  get text(): Uint8Array {
    this.#text ??= Buffer.from(this.#json());
    return this.#text;
  }

  #json(): string {
    const { type, span } = this;
    const timestamp = iso(type === "span:end" ? span.end : span.start);
    const data = { type, span: spanRecord({ span, origin: this.#origin }), timestamp };
    return JSON.stringify({ type: "OBSERVABILITY_EVENT", success: true, data });
  }
}

export function createSpanFeed(recorder: Recorder, origin: Origin) {
  const news = new Feed<SpanNews>(MAX_KEPT_SPANS);

  function started({ userId }: TraceData, span: SpanData): void {
    news.publish(new SpanNews("span:start", copyAtStart(span), userId, origin));
  }

  function ended({ userId }: TraceData, span: SpanData): void {
    // A span that has ended does not change any more, so no copy is needed.
    news.publish(new SpanNews("span:end", span, userId, origin));
  }

  return {
    news,
    get live(): boolean {
      return news.size > 0;
    },
    began: recorder.began,
    started,
    ended,
    take: recorder.take,
  };
}

/** A copy of the span at its start, because later attributes may be added to the same object. */
function copyAtStart(span: SpanData): SpanData {
  const { traceId, spanId, parentSpanId, name, kind, entity, start, status, attributes, links } = span;
  const identity = { traceId, spanId, parentSpanId, name, kind, entity, start };
  return { ...identity, end: 0, status, attributes: attributes && { ...attributes }, events: null, links };
}
