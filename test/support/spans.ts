/** Traces as a tracer hands them over, made by hand: for tests of what keeps and shows them. */
import { randomBytes } from "node:crypto";
import type { Entity, SpanData, SpanSink, TraceData } from "../../core/observability/span.ts";

export const ASSISTANT: Entity = { type: "agent", id: "assistant", name: "Assistant" };
export const WRITER: Entity = { type: "agent", id: "writer", name: "Writer" };
export const FLOW: Entity = { type: "workflow", id: "flow", name: "Flow" };

export const traceIdAt = (time: number): string =>
  Math.floor(time).toString(16).padStart(12, "0") + randomBytes(10).toString("hex");
export const spanIdAt = (time: number): string =>
  (Math.floor(time) % 2 ** 40).toString(16).padStart(10, "0") + randomBytes(3).toString("hex");

/** The clock of spans. */
export const now = (): number => performance.timeOrigin + performance.now();

interface TraceOptions {
  userId?: string;
  entity?: Entity;
  /** When it began: milliseconds since 1970. Default: now. */
  start?: number;
  /** A caller's. */
  traceId?: string;
  parentSpanId?: string;
}

/** One trace that goes on. */
export class HandTrace {
  readonly data: TraceData;
  readonly #sink: SpanSink;

  constructor(sink: SpanSink, { userId, entity = ASSISTANT, start = now(), traceId, parentSpanId }: TraceOptions = {}) {
    this.#sink = sink;
    const id = traceId ?? traceIdAt(start);
    const root = makeSpan(id, {
      entity,
      start,
      parentSpanId: parentSpanId ?? null,
      name: `invoke_agent ${entity.name}`,
    });
    this.data = {
      traceId: id,
      foreign: traceId !== undefined,
      userId: userId ?? null,
      root,
      spans: [root],
      open: 1,
      handed: 0,
      newer: null,
      older: null,
    };
    sink.began(this.data);
    if (sink.live) sink.started(this.data, root);
  }

  get id(): string {
    return this.data.traceId;
  }

  get root(): SpanData {
    return this.data.root;
  }

  child(given: Partial<SpanData> = {}): SpanData {
    const { entity, spanId } = this.data.root;
    const span = makeSpan(this.id, { entity, parentSpanId: spanId, name: "chat echo", kind: 2, ...given });
    this.data.spans.push(span);
    this.data.open++;
    if (this.#sink.live) this.#sink.started(this.data, span);
    return span;
  }

  end(span: SpanData, given: Partial<SpanData> = {}): void {
    Object.assign(span, { end: now(), status: { code: 1 } }, given);
    this.data.open--;
    if (this.#sink.live) this.#sink.ended(this.data, span);
    if (this.data.open === 0) {
      this.#sink.take(this.data, this.data.spans, true);
      this.data.spans = [];
    }
  }

  /** What a tracer does with what has ended of a long trace: the root too. */
  handOverAll(): void {
    const over = this.data.spans.filter((span) => span.end > 0);
    this.#sink.take(this.data, over, false);
    this.data.handed += over.length;
    this.data.spans = this.data.spans.filter((span) => !over.includes(span));
  }
}

type Given = Partial<SpanData> & Pick<SpanData, "entity" | "name">;

function makeSpan(traceId: string, given: Given): SpanData {
  const start = given.start ?? now();
  return {
    traceId,
    spanId: spanIdAt(start),
    parentSpanId: null,
    kind: 0,
    start,
    end: 0,
    attributes: null,
    status: { code: 0 },
    events: null,
    links: null,
    ...given,
  };
}

/** A trace of one span that has ended, with ids that are known before. */
export function recordOne(sink: SpanSink, { id, spanId, start }: { id: string; spanId: string; start: number }): void {
  const root = makeSpan(id, { entity: ASSISTANT, start, spanId, name: "invoke_agent Assistant", end: start + 1 });
  const rest = { foreign: false, userId: null, open: 0, handed: 0, newer: null, older: null };
  const trace: TraceData = { traceId: id, root, spans: [root], ...rest };
  sink.began(trace);
  sink.take(trace, trace.spans, true);
}

/** A trace of two spans that has ended. */
export function record(sink: SpanSink, options: TraceOptions & { failed?: boolean; took?: number } = {}): HandTrace {
  const trace = new HandTrace(sink, options);
  const { start } = trace.root;
  const end = start + (options.took ?? 1.5);
  const attributes = { "gen_ai.request.model": "echo", "gen_ai.usage.input_tokens": 3 };
  trace.end(trace.child({ start: start + 0.25, attributes }), { end: end - 0.25 });
  trace.end(trace.root, {
    end,
    status: options.failed ? { code: 2, message: "model provider failed: timed out" } : { code: 1 },
  });
  return trace;
}
