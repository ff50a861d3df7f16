/**
 * What tracing is made of, for everything that is traced and for everything that keeps or sends traces: leaf types, and no
 * behaviour. Where nothing is traced there is no span (`null`), so that a sampled-out run costs one comparison.
 */

/** Names of what a span is about, in `entity.type`. A tool only where it was executed by itself. */
export type EntityType = "agent" | "workflow" | "tool";

/** A value of an attribute, as OpenTelemetry allows them. */
export type AttributeValue = string | number | boolean | readonly string[] | readonly number[] | readonly boolean[];
export type Attributes = Record<string, AttributeValue>;

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

/** What has a beginning and an end. Everything a caller may do with it is synchronous and cannot fail. */
export interface Span extends SpanContext {
  /** A span below this one, of the same trace. */
  child(name: string, kind: SpanKind, attributes?: Attributes): Span;
  set(name: string, value: AttributeValue | undefined): void;
  /** An input or output. What is kept of it is what `observability.content` says; it is looked at once, here. */
  content(name: string, value: unknown): void;
  /** Ends it; a second call does nothing. Default: status unset. */
  end(status?: SpanStatus): void;
}

/** OpenTelemetry's: 0 internal, 1 server, 2 client. */
export type SpanKind = 0 | 1 | 2;
