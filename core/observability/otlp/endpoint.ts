/** The address that spans are sent to, and the headers that authenticate the service. Both are computed at boot. */

/** Path of the signal below a base address (OTLP specification, "OTLP/HTTP Request"). */
const TRACES = "/v1/traces";

/**
 * The address of a collector, as `OTEL_EXPORTER_OTLP_ENDPOINT` has it: spans go to `/v1/traces` below it. One that ends with
 * that path is taken as it is.
 *
 * @throws TypeError for a text that is not a URL
 */
export function tracesUrl(endpoint: string): string {
  const url = new URL(endpoint);
  const path = url.pathname.replace(/(?<!\/)\/+$/, "");
  url.pathname = path.endsWith(TRACES) ? path : path + TRACES;
  return url.href;
}

/** The address without user name, password and query, which may hold keys: for logs. */
export function shownUrl(url: string): string {
  const { origin, pathname } = new URL(url);
  return origin + pathname;
}

/** The keys of the service. A pair is sent as a user and a password. */
interface KeyPair {
  readonly publicKey: string;
  readonly secretKey: string;
}

/** The headers of the manifest, and one for the keys unless they name their own. */
export function otlpHeaders(headers: Readonly<Record<string, string>>, keys: KeyPair | null): Record<string, string> {
  const named = Object.keys(headers).some((name) => name.toLowerCase() === "authorization");
  if (keys === null || named) return { ...headers };
  const pair = Buffer.from(`${keys.publicKey}:${keys.secretKey}`).toString("base64");
  return { ...headers, Authorization: `Basic ${pair}` };
}
