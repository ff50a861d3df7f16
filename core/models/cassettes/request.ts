/** What a cassette keeps of a request: no headers, and nothing that a key is in. */
import type { Dispatcher } from "undici";
import { type CassetteChunk, type CassetteRequest, encodeChunk } from "./cassette.ts";

/** Of headers and of the query. */
const SECRET_NAME = /auth|key|token|secret|password|signature|credential|cookie|^sig$/i;
/** Shorter ones are no secrets, and may be anywhere in a text by chance. */
const MIN_SECRET_LENGTH = 8;
const HIDDEN = "***";

interface ReadRequest {
  readonly request: CassetteRequest;
  /** Replaces the secrets of this request in a text. */
  hide(text: string): string;
}

export function readRequest(provider: string, options: Dispatcher.DispatchOptions): ReadRequest {
  const { pathname, search } = new URL(options.path, "http://provider");
  const query = [...new URLSearchParams(search)];
  const secrets = [...headerEntries(options.headers), ...query]
    .filter(([name]) => SECRET_NAME.test(name))
    // `Bearer KEY`: the key is the secret.
    .map(([, value]) => value.slice(value.lastIndexOf(" ") + 1))
    .filter((value) => value.length >= MIN_SECRET_LENGTH);
  const hide = (text: string) => secrets.reduce((hidden, secret) => hidden.replaceAll(secret, HIDDEN), text);
  const shown = query.map(([name, value]) => `${name}=${SECRET_NAME.test(name) ? HIDDEN : value}`).join("&");
  const path = hide(shown === "" ? pathname : `${pathname}?${shown}`);
  const body = readBody(options.body, hide);
  return { request: { provider, method: options.method, path, ...(body !== undefined && { body }) }, hide };
}

/** Names and values in turn, or an object: the forms in which providers give them. */
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
  const hidden = hide(text);
  try {
    return JSON.parse(hidden);
  } catch {
    return hidden;
  }
}
