/**
 * Between the tracer and whatever keeps, streams or sends spans: plain data, no behaviour. The tracer fills it in while work runs
 * and hands it over when it has ended. A sink keeps no span that it was handed: it takes what it needs before it returns.
 * All of it is synchronous and must not throw.
 */
import type { Attributes, EntityType, SpanContext, SpanKind, SpanStatus } from "./span.ts";

/** The agent, workflow or tool that a span belongs to. A child has its parent's, unless it is the run of another one. */
export interface Entity {
  readonly type: EntityType;
  readonly id: string;
  readonly name: string;
}

/** Something that happened within a span. */
export interface SpanEvent {
  readonly name: string;
  /** Epoch milliseconds, fractional. */
  readonly time: number;
  readonly attributes: Attributes | null;
}

/** A span as tracing holds it. Its fields are always all there, so that every span has one shape. */
export interface SpanData {
  readonly traceId: string;
  /** Sixteen hexadecimal digits: the low 40 bits of the millisecond it began in, then a counter. Spans are found by that time. */
  readonly spanId: string;
  /** Of a root that continues a caller's trace: the caller's span. */
  readonly parentSpanId: string | null;
  readonly name: string;
  readonly kind: SpanKind;
  readonly entity: Entity;
  /** Epoch milliseconds, fractional. */
  readonly start: number;
  /** The same; 0 while it is open. */
  end: number;
  /** Already redacted. */
  attributes: Attributes | null;
  status: SpanStatus;
  events: readonly SpanEvent[] | null;
  links: readonly SpanContext[] | null;
}

/** One trace as this process sees it: what its spans share. */
export interface TraceData {
  /** 32 hexadecimal digits; unless it is foreign, the first twelve are the millisecond it began in. */
  readonly traceId: string;
  /** The id came with a caller's `traceparent`, so it says nothing about the time. */
  readonly foreign: boolean;
  /** Whose run it is, by token or by what the request named. */
  readonly userId: string | null;
  /** The first span here. It may end before its children do. */
  readonly root: SpanData;
  /** Begun, in that order, and not handed over yet: open ones among them. */
  spans: SpanData[];
  /** How many of `spans` are open. The trace has ended when none is. */
  open: number;
  /** How many spans were handed over before: 0 for all but long traces. */
  handed: number;
  /** Neighbours in the list of open traces, which the keeper of traces owns: null for everybody else. */
  newer: TraceData | null;
  older: TraceData | null;
}

/** What spans go to. */
export interface SpanSink {
  /** Somebody listens to single spans: `started` and `ended` are called only while it is true. */
  readonly live: boolean;
  /** A trace has begun: its root is open, and in `spans`. */
  began(trace: TraceData): void;
  started(trace: TraceData, span: SpanData): void;
  ended(trace: TraceData, span: SpanData): void;
  /**
   * Ended spans, in the order they began: what is left of a trace that has ended (`last`), or what ended of a long one as soon as
   * there are 256. `trace.handed` does not count them yet. Every trace that began is taken with `last` once.
   */
  take(trace: TraceData, spans: readonly SpanData[], last: boolean): void;
}
