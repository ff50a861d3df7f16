/** A sink that remembers the spans it is handed, and the tree that they make. */
import assert from "node:assert/strict";
import type { SpanData, SpanSink, TraceData } from "../../core/observability/span.ts";
import { createTracer, type Tracer } from "../../core/observability/tracer.ts";

export class TraceSink implements SpanSink {
  readonly live = false;
  readonly begun: TraceData[] = [];
  /** Spans of traces that have ended, by trace, in the order they ended. */
  readonly traces: SpanData[][] = [];
  readonly #partial = new Map<TraceData, SpanData[]>();

  began(trace: TraceData): void {
    this.begun.push(trace);
  }

  started(): void {}

  ended(): void {}

  take(trace: TraceData, spans: readonly SpanData[], last: boolean): void {
    const all = [...(this.#partial.get(trace) ?? []), ...spans];
    if (!last) this.#partial.set(trace, all);
    else this.traces.push(all);
  }

  /** The only trace that has ended, and no other is open. */
  get only(): SpanData[] {
    assert.equal(this.begun.length, 1, "one trace began");
    assert.equal(this.traces.length, 1, "one trace ended");
    return this.traces[0]!;
  }
}

/** A tracer that traces everything, and what it hands over. */
export function tracing(settings: Partial<Parameters<typeof createTracer>[0]> = {}): {
  tracer: Tracer;
  sink: TraceSink;
} {
  const sink = new TraceSink();
  const tracer = createTracer({ sample: 1, content: "redacted", secrets: [], ...settings }, [sink]);
  assert.ok(tracer !== null);
  return { tracer, sink };
}

/** `name` of each span, indented below its parent, with its error. */
export function treeOf(spans: readonly Pick<SpanData, "spanId" | "parentSpanId" | "name" | "status">[]): string[] {
  const known = new Set(spans.map(({ spanId }) => spanId));
  const lines = (parent: string | null, depth: number): string[] =>
    spans
      .filter(({ parentSpanId }) => (parent === null ? !known.has(parentSpanId ?? "") : parentSpanId === parent))
      .flatMap(({ spanId, name, status }) => [
        `${"  ".repeat(depth)}${name}${status.code === 2 ? ` ! ${status.message}` : ""}`,
        ...lines(spanId, depth + 1),
      ]);
  return lines(null, 0);
}

export function spanNamed(spans: readonly SpanData[], name: string): SpanData {
  const found = spans.filter((span) => span.name === name);
  assert.equal(found.length, 1, `one span is called ${name}`);
  return found[0]!;
}
