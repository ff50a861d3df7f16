/** The part of a request that a cassette stores: no headers, and no secrets. */
import type { Dispatcher } from "undici";
import { MASK } from "../../lib/secrets.ts";
import { type CassetteChunk, type CassetteRequest, encodeChunk } from "./cassette.ts";
import { cleanText, cleanValue } from "./clean.ts";
import { hideSecrets, mayBeSecret } from "./secrets.ts";

interface ReadRequest {
  readonly request: CassetteRequest;
  /** Replaces the secrets of this request in a text. */
  hide(text: string): string;
}

/** @param settings secrets in the settings of the provider */
export function readRequest(
  provider: string,
  options: Dispatcher.DispatchOptions,
  settings: readonly string[],
): ReadRequest {
  const { pathname, search } = new URL(options.path, "http://provider");
  const query = [...new URLSearchParams(search)];
  const named = [...headerEntries(options.headers), ...query].filter(([name]) => mayBeSecret(name));
  const hide = hideSecrets([...settings, ...named.map(([, value]) => value)]);
  const shown = query.map(([name, value]) => {
    const isSecret = mayBeSecret(name) || settings.includes(value);
    return `${name}=${isSecret ? MASK : value}`;
  });
  const path = hide(shown.length === 0 ? pathname : `${pathname}?${shown.join("&")}`);
  const body = readBody(options.body, hide);
  return { request: { provider, method: options.method, path, ...(body !== undefined && { body }) }, hide };
}

/** Reads both forms in which providers pass headers: a list of alternating names and values, or an object. */
function headerEntries(headers: Dispatcher.DispatchOptions["headers"]): [string, string][] {
  if (!Array.isArray(headers)) return Object.entries(headers ?? {}).map(([name, value]) => [name, String(value)]);
  return headers.flatMap((name, index): [string, string][] =>
    index % 2 === 0 ? [[String(name), String(headers[index + 1])]] : [],
  );
}

function readBody(body: Dispatcher.DispatchOptions["body"], hide: (text: string) => string): unknown {
  if (body === undefined || body === null) return undefined;
  const text: CassetteChunk = typeof body === "string" ? body : encodeChunk(body as Uint8Array);
  if (typeof text !== "string") return text;
  try {
    return cleanValue(JSON.parse(text), hide);
  } catch {
    return cleanText(text, hide);
  }
}
