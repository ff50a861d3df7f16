/** OTLP export as boot opens and closes it. What sends is loaded only where there is somewhere to send to. */
import type { Logger } from "pino";
import { VERSION } from "../../version.ts";
import type { Meters } from "../metrics/meters.ts";
import type { SpanSink } from "../sink.ts";
import { otlpHeaders, shownUrl, tracesUrl } from "./endpoint.ts";
import type { SpanQueue } from "./span-queue.ts";

export interface OtlpSettings {
  /** `observability.otlp` of the manifest; an empty endpoint: nothing is sent. */
  readonly otlp: { readonly endpoint: string; readonly headers: Readonly<Record<string, string>> };
  /** Name and version of the service. */
  readonly name: string;
  readonly version: string;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly logger: Logger;
  readonly meters: Pick<Meters, "add">;
}

export interface OtlpExport {
  readonly sink: SpanSink;
  /** Sends what is left, for two seconds at most. */
  close(): Promise<void>;
}

export async function openOtlp(settings: OtlpSettings): Promise<OtlpExport | null> {
  const { otlp, name, version, env, logger, meters } = settings;
  if (otlp.endpoint === "") return null;
  const [{ Collector }, { SpanQueue }] = await Promise.all([import("./collector.ts"), import("./span-queue.ts")]);
  const url = tracesUrl(otlp.endpoint);
  const where = `the collector at ${shownUrl(url)}`;
  const { SERVICE_PUBLIC_KEY: publicKey, SERVICE_SECRET_KEY: secretKey } = env;
  const headers = otlpHeaders(otlp.headers, publicKey && secretKey ? { publicKey, secretKey } : null);
  const source = { name, version, scope: { name: "penstock", version: VERSION } };
  const queue = new SpanQueue({ collector: new Collector({ url, headers }), source, logger, where });
  count(queue, meters);
  return { sink: queue, close: () => queue.close() };
}

function count(queue: SpanQueue, meters: Pick<Meters, "add">): void {
  meters.add({
    name: "otlp_spans_sent_total",
    help: "Spans that the collector has taken.",
    type: "counter",
    read: () => queue.sent,
  });
  meters.add({
    name: "otlp_spans_dropped_total",
    help: "Spans that were not sent: the collector was away, slow, or refused them.",
    type: "counter",
    read: () => queue.dropped,
  });
  meters.add({
    name: "otlp_spans_waiting",
    help: "Spans that wait to be sent.",
    type: "gauge",
    read: () => queue.size,
  });
}
