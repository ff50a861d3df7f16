/** Converts spans to the form of OpenTelemetry's exporters, when they are sent: the queue has only a few fields of each. */
import { type Resource, resourceFromAttributes } from "@opentelemetry/resources";
import type { ReadableSpan } from "@opentelemetry/sdk-trace";
import type { SpanData } from "../sink.ts";
import type { Attributes } from "../span.ts";
import type { QueuedSpan } from "./span-queue.ts";

/** The service that sends the spans. */
export interface SpanSource {
  readonly name: string;
  readonly version: string;
  /** The instrumentation that made the spans, and its version. */
  readonly scope: { readonly name: string; readonly version: string };
}

export const resourceOf = ({ name, version }: SpanSource): Resource =>
  resourceFromAttributes({ "service.name": name, "service.version": version });

/** W3C's flag of a trace that is recorded. */
const SAMPLED_FLAG = 1;

export function readableSpan(span: QueuedSpan, resource: Resource, { scope }: SpanSource): ReadableSpan {
  const { traceId, spanId, parentSpanId, name, kind, status, start, end, attributes, events, links } = span;
  const context = { traceId, spanId, traceFlags: SAMPLED_FLAG };
  return {
    name,
    kind,
    status,
    spanContext: () => context,
    ...(parentSpanId !== null && { parentSpanContext: { ...context, spanId: parentSpanId, isRemote: span.remote } }),
    startTime: hrTime(start),
    endTime: hrTime(end),
    duration: hrTime(end - start),
    ended: true,
    attributes: { ...entityAttributes(span), ...present(attributes) },
    events: (events ?? []).map(({ name, time, attributes }) => ({
      name,
      time: hrTime(time),
      attributes: present(attributes),
    })),
    links: (links ?? []).map((link) => ({ context: { ...link, traceFlags: SAMPLED_FLAG } })),
    resource,
    instrumentationScope: scope,
    droppedAttributesCount: 0,
    droppedEventsCount: 0,
    droppedLinksCount: 0,
  };
}

const entityAttributes = ({ entity: { id, type, name } }: SpanData): ReadableSpan["attributes"] => ({
  "entity.id": id,
  "entity.type": type,
  "entity.name": name,
});

/** Leaves out attributes that are undefined. */
function present(attributes: Attributes | null): ReadableSpan["attributes"] {
  const given: Record<string, unknown> = {};
  for (const key in attributes) if (attributes[key] !== undefined) given[key] = attributes[key];
  return given as ReadableSpan["attributes"];
}

/** Converts milliseconds with fractions to seconds and nanoseconds. */
function hrTime(milliseconds: number): [number, number] {
  const seconds = Math.floor(milliseconds / 1000);
  const nanoseconds = Math.round((milliseconds - seconds * 1000) * 1e6);
  return nanoseconds < 1e9 ? [seconds, nanoseconds] : [seconds + 1, 0];
}
