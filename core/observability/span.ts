/**
 * The types of tracing, for code that is traced and for code that stores or sends traces. Where nothing is traced there is no span
 * (`null`), so that a run that is not sampled costs one comparison.
 */
import type { Entity } from "./sink.ts";

/** Names of what a span is about, in `entity.type`. A tool only where it was executed by itself. */
export type EntityType = "agent" | "workflow" | "tool";

/** A value of an attribute, as OpenTelemetry allows them. */
export type AttributeValue = string | number | boolean | readonly string[] | readonly number[] | readonly boolean[];
/** A name with the value undefined is not there: one shape of object serves all spans of a kind. Frozen, or nobody else's. */
export type Attributes = Record<string, AttributeValue | undefined>;

/** As W3C Trace Context names a span to others: 32 and 16 lower-case hexadecimal digits. */
export interface SpanContext {
  readonly traceId: string;
  readonly spanId: string;
}

/** OpenTelemetry's codes: 0 unset, 1 ok, 2 error. */
export interface SpanStatus {
  readonly code: 0 | 1 | 2;
  readonly message?: string;
}

/** OpenTelemetry's: 0 internal, 1 server, 2 client. */
export type SpanKind = 0 | 1 | 2;

/** Where spans begin: a request, which begins a trace, or a span, which adds to its trace. */
export interface SpanOrigin {
  /**
   * @param entity whose run it is. A tool that an agent or a workflow calls belongs to these.
   * @param userId whose run it is, where a trace begins; a span knows it already
   * @returns null for what is not traced
   */
  begin(name: string, kind: SpanKind, entity: Entity, userId?: string): Span | null;
}

/** Work that has a beginning and an end. All methods are synchronous and never throw. */
export interface Span extends SpanContext, SpanOrigin {
  begin(name: string, kind: SpanKind, entity: Entity): Span;
  /** A span below this one, of the same entity. */
  child(name: string, kind: SpanKind): Span;
  /** The header `tracestate` of the caller whose trace this continues; empty without one. */
  readonly tracestate: string;
  /** What was set so far. */
  readonly attributes: Attributes | null;
  /** Milliseconds since it began. */
  elapsed(): number;
  /** Adds attributes. The first ones are kept as they are, so that they must be the caller's own. */
  set(attributes: Attributes): void;
  /** An input or output, as an attribute. What is kept of it is what `observability.content` says; it is looked at once, here. */
  content(name: string, value: unknown): void;
  /** What is kept of an input or output, for attributes that are set together; undefined for nothing. */
  clean(value: unknown): string | undefined;
  /** Whether `content` and `clean` keep anything: for values that have to be made first. */
  readonly wantsContent: boolean;
  event(name: string, attributes?: Attributes): void;
  /** Adds a link to another span that led to this one, maybe of another trace. */
  link(context: SpanContext): void;
  /** Ends it; a second end does nothing, and so does everything after the first. Default: status unset. */
  finish(status?: SpanStatus): void;
  /**
   * Ends it with an error.
   *
   * @param type what `error.type` says: one word
   * @param message for people; credentials in it are blanked
   */
  fail(type: string, message: string): void;
}
