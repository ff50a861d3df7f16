/** Sends spans to a collector with OpenTelemetry's exporter, which retries a batch until its timeout. Later retries are up to the caller. */
import { OTLPTraceExporter } from "@opentelemetry/exporter-trace-otlp-http";
import { messageOf } from "../../lib/errors.ts";
import { VERSION } from "../../lib/version.ts";
import { readableSpan, resourceOf, type SpanSource } from "./readable-span.ts";
import type { QueuedSpan } from "./span-queue.ts";

interface CollectorSettings {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly source: SpanSource;
  /** Milliseconds after which a batch has failed, retries included. Default 10,000. */
  readonly timeout?: number;
}

/** The outcome of sending a batch. */
export type Sent =
  | { readonly kind: "sent" }
  /** Sending failed, and may be retried. */
  | { readonly kind: "failed"; readonly reason: string }
  /** The collector rejected the batch, and would reject it again. */
  | { readonly kind: "refused"; readonly reason: string };

type Settings = NonNullable<ConstructorParameters<typeof OTLPTraceExporter>[0]>;

const SEND_TIMEOUT_MS = 10_000;
const GZIP = "gzip" as Settings["compression"];

export class Collector {
  readonly #source: SpanSource;
  readonly #resource;
  readonly #exporter: OTLPTraceExporter;

  constructor({ url, headers, source, timeout = SEND_TIMEOUT_MS }: CollectorSettings) {
    this.#source = source;
    this.#resource = resourceOf(source);
    this.#exporter = new OTLPTraceExporter({
      url,
      headers: { ...headers },
      timeoutMillis: timeout,
      concurrencyLimit: 1,
      compression: GZIP,
      userAgent: `Penstock/${VERSION}`,
    });
  }

  /** Never rejects. */
  send(spans: readonly QueuedSpan[]): Promise<Sent> {
    return new Promise((resolve) => {
      const readable = spans.map((span) => readableSpan(span, this.#resource, this.#source));
      this.#exporter.export(readable, ({ error }) => resolve(error === undefined ? SENT : sendOutcome(error)));
    });
  }

  /** Closes the connection once pending requests have been answered. */
  close(): void {
    this.#exporter.shutdown().catch(() => {});
  }
}

const SENT: Sent = { kind: "sent" };

/** Only an error for a batch that the collector has finally rejected has a status. */
function sendOutcome(error: Error & { code?: unknown }): Sent {
  if (typeof error.code === "number") return { kind: "refused", reason: `status ${error.code}` };
  return { kind: "failed", reason: messageOf(error) || String(error.code ?? error.name) };
}
