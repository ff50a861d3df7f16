/**
 * The types of tracing, for code that is traced and for code that stores or sends traces. Without tracing a span is `null`, so that a
 * run that is not sampled costs one comparison.
 */

/** The agent, workflow or tool to which a span belongs. A child has its parent's, unless it is the run of another one. */
export interface Entity {
  readonly type: EntityType;
  readonly id: string;
  readonly name: string;
}

/** What a span is about, in `entity.type`. A tool only if it was executed on its own. */
export type EntityType = "agent" | "workflow" | "tool";

/** A value of an attribute, as OpenTelemetry allows them. */
export type AttributeValue = string | number | boolean | readonly string[] | readonly number[] | readonly boolean[];
/** Attributes by name; undefined counts as missing, so that all spans of a kind have one shape. Frozen, or owned by the span. */
export type Attributes = Record<string, AttributeValue | undefined>;

/** The identity of a span in W3C Trace Context: 32 and 16 lower-case hexadecimal digits. */
export interface SpanContext {
  readonly traceId: string;
  readonly spanId: string;
}

/** Status codes of OpenTelemetry: 0 unset, 1 ok, 2 error. */
export interface SpanStatus {
  readonly code: 0 | 1 | 2;
  readonly message?: string;
}

/** Kinds of OpenTelemetry: 0 internal, 1 server, 2 client. */
export type SpanKind = 0 | 1 | 2;

/** Where spans start: at a request, which starts a trace, or at a span, which adds to its trace. */
export interface SpanOrigin {
  /**
   * @param entity of the run. A tool that an agent or a workflow calls belongs to these.
   * @param userId user of the run, if a trace starts; a span knows it already
   * @returns null when the run is not traced
   */
  begin(name: string, kind: SpanKind, entity: Entity, userId?: string): Span | null;
}

/** Work with a start and an end. All methods are synchronous and never throw. */
export interface Span extends SpanContext, SpanOrigin {
  begin(name: string, kind: SpanKind, entity: Entity): Span;
  /** A span below this one, of the same entity. */
  child(name: string, kind: SpanKind): Span;
  /** The header `tracestate` of the caller whose trace this continues; empty without one. */
  readonly tracestate: string;
  /** The attributes set so far. */
  readonly attributes: Attributes | null;
  /** Milliseconds since the start. */
  elapsed(): number;
  /** Adds attributes. The first object is kept without copying, so that the caller must not use it again. */
  set(attributes: Attributes): void;
  /** Records an input or output as an attribute, redacted as `observability.content` says. Redacting happens only once, here. */
  content(name: string, value: unknown): void;
  /** Redacts an input or output, for attributes that are set together; undefined when nothing is to be recorded. */
  clean(value: unknown): string | undefined;
  /** Whether `content` and `clean` record anything: for values that are expensive to compute. */
  readonly wantsContent: boolean;
  /** Whether whole prompts are recorded too: with `full` content. */
  readonly wantsPrompts: boolean;
  event(name: string, attributes?: Attributes): void;
  /** Adds a link to another span that led to this one, perhaps of another trace. */
  link(context: SpanContext): void;
  /** Ends the span; after the first end, this and all other methods do nothing. Default: status unset. */
  finish(status?: SpanStatus): void;
  /**
   * Ends the span with an error.
   *
   * @param type value of `error.type`: one word
   * @param message for people; credentials in it are blanked
   */
  fail(type: string, message: string): void;
}
