/**
 * The interface between the tracer and whatever keeps, streams or sends spans: plain data, no behaviour. The tracer fills it in while
 * work runs and hands it over at the end. A sink must copy what it needs before it returns, and keep no span that it was handed.
 * All of it is synchronous and must not throw.
 */
import type { Attributes, Entity, SpanContext, SpanKind, SpanStatus } from "./span.ts";

/** Something that happened within a span. */
export interface SpanEvent {
  readonly name: string;
  /** Milliseconds since 1970, with fractions. */
  readonly time: number;
  readonly attributes: Attributes | null;
}

/** The data of a span. All fields are always present, so that every span has one shape. */
export interface SpanData {
  readonly traceId: string;
  /** Sixteen hexadecimal digits: the low 40 bits of the millisecond it started in, then a counter. Spans are found by that time. */
  readonly spanId: string;
  /** For a root that continues a caller's trace, the caller's span. */
  readonly parentSpanId: string | null;
  readonly name: string;
  readonly kind: SpanKind;
  readonly entity: Entity;
  /** Milliseconds since 1970, with fractions. */
  readonly start: number;
  /** Like `start`; 0 while the span is open. */
  end: number;
  /** Already redacted. */
  attributes: Attributes | null;
  status: SpanStatus;
  events: readonly SpanEvent[] | null;
  links: readonly SpanContext[] | null;
}

/** One trace as this process sees it: the data that its spans share. */
export interface TraceData {
  /** 32 hexadecimal digits. Unless the id is foreign, the first twelve are the millisecond in which the trace started. */
  readonly traceId: string;
  /** Whether the id came with a caller's `traceparent`, so that it says nothing about the time. */
  readonly foreign: boolean;
  /** The user of the run, from the token or the request. */
  readonly userId: string | null;
  /** The first span in this process. It may end before its children do. */
  readonly root: SpanData;
  /** Spans that have started and were not handed over yet, in the order of their start; some are open. */
  spans: SpanData[];
  /** How many of `spans` are open. The trace has ended when there are none. */
  open: number;
  /** How many spans were handed over before: 0 for all but long traces. */
  handed: number;
  /** Neighbours in the list of open traces, which only the recorder of traces uses; otherwise null. */
  newer: TraceData | null;
  older: TraceData | null;
}

/** A destination of spans. */
export interface SpanSink {
  /** Whether single spans have listeners: `started` and `ended` are called only while it is true. */
  readonly live: boolean;
  /** Called when a trace has started: its root is open, and in `spans`. */
  began(trace: TraceData): void;
  started(trace: TraceData, span: SpanData): void;
  ended(trace: TraceData, span: SpanData): void;
  /**
   * Receives ended spans in the order of their start: the rest of a trace that has ended (`last`), or those of a long one as soon as
   * there are 256. `trace.handed` does not include them yet. Called with `last` exactly once for every trace.
   */
  take(trace: TraceData, spans: readonly SpanData[], last: boolean): void;
}
