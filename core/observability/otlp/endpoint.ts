/** The address to which spans are sent, and the headers that authenticate the service. Both are computed at boot. */

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
