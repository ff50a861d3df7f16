/** Sends spans to a collector: OTLP over HTTP, as JSON. When to try again is up to the caller. */
import { promisify } from "node:util";
import { gzip } from "node:zlib";
import undici from "undici";
import { messageOf } from "../../lib/errors.ts";
import { retryAfter } from "../../lib/retry.ts";
import { VERSION } from "../../lib/version.ts";
import { createOutboundAgent } from "../../outbound/proxy.ts";
import type { Attributes, AttributeValue, SpanData } from "../span.ts";

/** A copy of the data of a span: the span itself would keep its whole trace in memory. */
export interface QueuedSpan extends SpanData {
  /** Whether its parent is a span of the calling service. */
  readonly remote: boolean;
}

interface CollectorSettings {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  /** The service that sends the spans. */
  readonly source: {
    readonly name: string;
    readonly version: string;
    /** The instrumentation that made the spans, and its version. */
    readonly scope: { readonly name: string; readonly version: string };
  };
  /** Milliseconds after which a batch has failed. Default 10,000. */
  readonly timeout?: number;
}

/** The outcome of sending a batch. */
export type Sent =
  | { readonly kind: "sent" }
  /** Sending failed, and may be retried: after `wait` milliseconds, if the collector has asked for time. */
  | { readonly kind: "failed"; readonly reason: string; readonly wait: number }
  /** The collector rejected the batch, and would reject it again. */
  | { readonly kind: "refused"; readonly reason: string };

const SEND_TIMEOUT_MS = 10_000;
/** OTLP specification, "Retryable Response Codes". */
const RETRYABLE: readonly number[] = [429, 502, 503, 504];

export type Collector = ReturnType<typeof createCollector>;

export function createCollector(settings: CollectorSettings) {
  const agent = createOutboundAgent(undici, {});
  const given = Object.entries(settings.headers).map(([name, value]) => [name.toLowerCase(), value]);
  const sentHeaders: Readonly<Record<string, string>> = {
    "user-agent": `Penstock/${VERSION}`,
    ...Object.fromEntries(given),
    "content-type": "application/json",
    "content-encoding": "gzip",
  };

  /** Never rejects. */
  async function send(batch: readonly QueuedSpan[]): Promise<Sent> {
    const { url, source, timeout = SEND_TIMEOUT_MS } = settings;
    const { name, version, scope } = source;
    const resource = { attributes: keyValues({ "service.name": name, "service.version": version }) };
    const text = JSON.stringify({ resourceSpans: [{ resource, scopeSpans: [{ scope, spans: batch.map(wireSpan) }] }] });
    try {
      const { statusCode, headers, body } = await undici.request(url, {
        method: "POST",
        headers: sentHeaders,
        body: await promisify(gzip)(text),
        dispatcher: agent,
        signal: AbortSignal.timeout(timeout),
      });
      await body.dump();
      if (statusCode < 300) return { kind: "sent" };
      const reason = `status ${statusCode}`;
      if (!RETRYABLE.includes(statusCode)) return { kind: "refused", reason };
      return { kind: "failed", reason, wait: retryAfter(headers["retry-after"]) ?? 0 };
    } catch (error) {
      return { kind: "failed", reason: messageOf(error) || String((error as NodeJS.ErrnoException).code), wait: 0 };
    }
  }

  /** Closes the connection at once. */
  function close(): void {
    agent.destroy().catch(() => {});
  }

  return { send, close };
}

/** Flags of a span: its trace is recorded, and it is said whether its parent is in another service. */
const FLAGS = 0x101;
const PARENT_IS_REMOTE = 0x200;

function wireSpan(span: QueuedSpan) {
  const { traceId, spanId, parentSpanId, name, kind, status, start, end, entity, attributes, events, links } = span;
  return {
    traceId,
    spanId,
    ...(parentSpanId !== null && { parentSpanId }),
    name,
    kind: kind + 1,
    startTimeUnixNano: nanoseconds(start),
    endTimeUnixNano: nanoseconds(end),
    attributes: keyValues({
      "entity.id": entity.id,
      "entity.type": entity.type,
      "entity.name": entity.name,
      ...attributes,
    }),
    events: (events ?? []).map(({ name, time, attributes }) => ({
      name,
      timeUnixNano: nanoseconds(time),
      attributes: keyValues(attributes ?? {}),
    })),
    links: (links ?? []).map(({ traceId, spanId }) => ({ traceId, spanId, flags: FLAGS })),
    status,
    flags: span.remote ? FLAGS | PARENT_IS_REMOTE : FLAGS,
  };
}

const keyValues = (attributes: Attributes) =>
  Object.entries(attributes).flatMap(([key, value]) => (value === undefined ? [] : { key, value: anyValue(value) }));

function anyValue(value: AttributeValue): object {
  if (typeof value === "string") return { stringValue: value };
  if (typeof value === "boolean") return { boolValue: value };
  if (typeof value === "number") return Number.isSafeInteger(value) ? { intValue: value } : { doubleValue: value };
  return { arrayValue: { values: value.map(anyValue) } };
}

/** Of milliseconds with fractions. */
function nanoseconds(milliseconds: number): string {
  const whole = Math.floor(milliseconds);
  return String(BigInt(whole) * 1_000_000n + BigInt(Math.round((milliseconds - whole) * 1e6)));
}
