/** Spans as OTLP/HTTP with JSON has them (opentelemetry-proto, trace.proto; identifiers are hexadecimal there). */
import type { SpanData, SpanEvent, TraceData } from "../sink.ts";
import type { Attributes, AttributeValue, SpanContext } from "../span.ts";

/** What a span says, without the span, on which its whole trace may hang. */
export interface QueuedSpan extends SpanData {
  /** Whether its parent is a span of the service that made the request. */
  readonly remote: boolean;
}

export function queuedSpan(span: SpanData, trace: Pick<TraceData, "root">): QueuedSpan {
  const { traceId, spanId, parentSpanId, name, kind, entity, start, end, attributes, status, events, links } = span;
  const remote = span === trace.root && parentSpanId !== null;
  return { traceId, spanId, parentSpanId, name, kind, entity, start, end, attributes, status, events, links, remote };
}

/** Of the service that sends. */
export interface Source {
  readonly name: string;
  readonly version: string;
  /** What made the spans, and its version. */
  readonly scope: { readonly name: string; readonly version: string };
}

/** W3C's flag of a sampled trace; and that the next one, which says where the parent is, is known. */
const FLAGS = 0x01 | 0x100;
const REMOTE = 0x200;

/** The JSON text of one request. */
export function encodeRequest(spans: readonly QueuedSpan[], { name, version, scope }: Source): string {
  const attributes = encodeAttributes({ "service.name": name, "service.version": version });
  const resource = { attributes, droppedAttributesCount: 0 };
  return JSON.stringify({ resourceSpans: [{ resource, scopeSpans: [{ scope, spans: spans.map(encodeSpan) }] }] });
}

function encodeSpan(span: QueuedSpan): object {
  return {
    traceId: span.traceId,
    spanId: span.spanId,
    ...(span.parentSpanId !== null && { parentSpanId: span.parentSpanId }),
    name: span.name,
    // The protocol keeps 0 for kinds that are not said.
    kind: span.kind + 1,
    startTimeUnixNano: nanoseconds(span.start),
    endTimeUnixNano: nanoseconds(span.end),
    attributes: [...encodeAttributes(entityAttributes(span)), ...encodeAttributes(span.attributes)],
    droppedAttributesCount: 0,
    events: (span.events ?? []).map(encodeEvent),
    droppedEventsCount: 0,
    status: span.status,
    links: (span.links ?? []).map(encodeLink),
    droppedLinksCount: 0,
    flags: span.remote ? FLAGS | REMOTE : FLAGS,
  };
}

const entityAttributes = ({ entity: { id, type, name } }: SpanData): Attributes => ({
  "entity.id": id,
  "entity.type": type,
  "entity.name": name,
});

const encodeEvent = ({ name, time, attributes }: SpanEvent) => ({
  attributes: encodeAttributes(attributes),
  name,
  timeUnixNano: nanoseconds(time),
  droppedAttributesCount: 0,
});

const encodeLink = ({ traceId, spanId }: SpanContext) => ({
  attributes: [],
  spanId,
  traceId,
  droppedAttributesCount: 0,
  flags: FLAGS,
});

function encodeAttributes(attributes: Attributes | null): object[] {
  const encoded = [];
  for (const key in attributes) {
    const value = attributes[key];
    // It has a place there all the same.
    if (value !== undefined) encoded.push({ key, value: encodeValue(value) });
  }
  return encoded;
}

function encodeValue(value: AttributeValue | string | number | boolean): object {
  if (typeof value === "string") return { stringValue: value };
  if (typeof value === "boolean") return { boolValue: value };
  if (typeof value === "object") return { arrayValue: { values: [...value].map(encodeValue) } };
  if (Number.isSafeInteger(value)) return { intValue: value };
  // JSON has no numbers for these; the protocol takes their names.
  return { doubleValue: Number.isFinite(value) ? value : String(value) };
}

/** From milliseconds with fractions to a text of nanoseconds, which no number holds. */
function nanoseconds(milliseconds: number): string {
  const seconds = Math.floor(milliseconds / 1000);
  const rest = Math.round((milliseconds - seconds * 1000) * 1e6);
  return rest < 1e9 ? `${seconds}${String(rest).padStart(9, "0")}` : `${seconds + 1}000000000`;
}
