/** Opens the export of spans over OTLP. The exporter is loaded only if the manifest names a collector. */
import type { Logger } from "pino";
import { VERSION } from "../../lib/version.ts";
import type { Meters } from "../metrics/meters.ts";
import type { SpanSink } from "../span.ts";
import type { SpanQueue } from "./span-queue.ts";

/** Path of the signal below a base address (OTLP specification, "OTLP/HTTP Request"). */
const TRACES = "/v1/traces";

/**
 * The address of a collector as in `OTEL_EXPORTER_OTLP_ENDPOINT`: spans go to `/v1/traces` below it. An address that ends with
 * that path is used unchanged.
 *
 * @throws TypeError for a text that is not a URL
 */
export function tracesUrl(endpoint: string): string {
  const url = new URL(endpoint);
  const path = url.pathname.replace(/(?<!\/)\/+$/, "");
  url.pathname = path.endsWith(TRACES) ? path : path + TRACES;
  return url.href;
}

/** The address for logs: without user name, password and query, which may contain keys. */
export function shownUrl(url: string): string {
  const { origin, pathname } = new URL(url);
  return origin + pathname;
}

/** The keys of the service, which are sent as user name and password. */
interface KeyPair {
  readonly publicKey: string;
  readonly secretKey: string;
}

/** The headers of the manifest, and one for the keys unless they include an own `authorization`. */
export function otlpHeaders(headers: Readonly<Record<string, string>>, keys: KeyPair | null): Record<string, string> {
  const named = Object.keys(headers).some((name) => name.toLowerCase() === "authorization");
  if (keys === null || named) return { ...headers };
  const pair = Buffer.from(`${keys.publicKey}:${keys.secretKey}`).toString("base64");
  return { ...headers, Authorization: `Basic ${pair}` };
}

/** The parts of the manifest that are needed here. With an empty endpoint nothing is exported. */
interface OtlpManifest {
  readonly name: string;
  readonly version: string;
  readonly observability: {
    readonly otlp: { readonly endpoint: string; readonly headers: Readonly<Record<string, string>> };
  };
}

interface OtlpEnvironment {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly logger: Logger;
}

interface OtlpExport {
  readonly sink: SpanSink;
  /** Sends the remaining spans, for two seconds at most. */
  close(): Promise<void>;
}

/** @throws TypeError for an endpoint that is not a URL, which the check of the manifest has refused before */
export async function openOtlp(
  { name, version, observability: { otlp } }: OtlpManifest,
  { env, logger }: OtlpEnvironment,
  meters: Pick<Meters, "add">,
): Promise<OtlpExport | null> {
  if (otlp.endpoint === "") return null;
  const [{ createCollector }, { createSpanQueue }] = await Promise.all([
    import("./collector.ts"),
    import("./span-queue.ts"),
  ]);
  const url = tracesUrl(otlp.endpoint);
  const where = `the collector at ${shownUrl(url)}`;
  const { SERVICE_PUBLIC_KEY: publicKey, SERVICE_SECRET_KEY: secretKey } = env;
  if (Boolean(publicKey) !== Boolean(secretKey)) {
    logger.warn("SERVICE_PUBLIC_KEY and SERVICE_SECRET_KEY are sent together: one is not set, so neither is sent");
  }
  const headers = otlpHeaders(otlp.headers, publicKey && secretKey ? { publicKey, secretKey } : null);
  const source = { name, version, scope: { name: "penstock", version: VERSION } };
  const queue = createSpanQueue({ collector: createCollector({ url, headers, source }), logger, where });
  const counted = count(queue, meters);
  return {
    sink: queue,
    async close() {
      await queue.close();
      for (const end of counted) end();
    },
  };
}

const count = (queue: SpanQueue, meters: Pick<Meters, "add">): (() => void)[] => [
  meters.add({
    name: "otlp_spans_sent_total",
    help: "Spans that the collector has taken.",
    type: "counter",
    read: () => queue.sent,
  }),
  meters.add({
    name: "otlp_spans_dropped_total",
    help: "Spans that were not sent: the collector was away, slow, or refused them.",
    type: "counter",
    read: () => queue.dropped,
  }),
  meters.add({
    name: "otlp_spans_waiting",
    help: "Spans that wait to be sent.",
    type: "gauge",
    read: () => queue.size,
  }),
];
