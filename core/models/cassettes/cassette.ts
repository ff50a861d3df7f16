/** A cassette: one request to a provider and its answers. The file is YAML, so that people can read and compare it. */
import { createHash } from "node:crypto";
import { brotliDecompressSync, gunzipSync, inflateSync } from "node:zlib";
import type { Dispatcher } from "undici";
import { parse, stringify } from "yaml";
import { canonicalJson } from "../../lib/canonical-json.ts";
import { isObject } from "../../lib/is-object.ts";
import { isSecretName, MASK } from "../../lib/secrets.ts";
import { BLANK, isCard, redact } from "../../observability/redaction.ts";
import { hideSecrets, mayBeSecret } from "./secrets.ts";

export interface CassetteRequest {
  /** Its key in the manifest. The origin is not stored: it may differ at each start. */
  readonly provider: string;
  readonly method: string;
  /** The path with the query. */
  readonly path: string;
  /** The parsed body if it is JSON, else its text. */
  readonly body?: unknown;
}

/** A chunk of an answer as it arrived: text, or bytes that are not valid UTF-8 on their own. */
type CassetteChunk = string | { readonly base64: string };

export interface CassetteAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly chunks: readonly CassetteChunk[];
}

export interface Cassette {
  readonly request: CassetteRequest;
  /** The answers to the same request, in the order in which it was sent. */
  readonly answers: readonly CassetteAnswer[];
}

/** Identifies a request; the order of keys in its body does not matter. */
export const requestKey = (request: CassetteRequest): string =>
  createHash("sha256").update(canonicalJson(request)).digest("hex");

/** The path below the folder of cassettes: provider, model and hash, so that a request always has the same file. */
export function fileName(request: CassetteRequest): string {
  const { provider, path, body } = request;
  const model = (body as { model?: unknown } | null | undefined)?.model;
  const about = typeof model === "string" ? model : path.split("?", 1)[0]!.split("/").at(-1)!;
  return `${slug(provider)}/${slug(about)}-${requestKey(request).slice(0, 12)}.yaml`;
}

const slug = (text: string): string => text.replace(/[^A-Za-z0-9_]+/g, "-").slice(0, 60) || "-";

export const writeCassette = (cassette: Cassette): string =>
  stringify(cassette, { lineWidth: 0, blockQuote: "literal", aliasDuplicateObjects: false });

/** @throws Error when the text is not a cassette */
export function readCassette(text: string): Cassette {
  const cassette = parse(text) as Partial<Cassette> | null;
  const { request, answers } = cassette ?? {};
  const isRequest = [request?.provider, request?.method, request?.path].every((each) => typeof each === "string");
  if (!isRequest) throw new Error("request must have provider, method and path");
  if (!Array.isArray(answers) || answers.length === 0) throw new Error("answers must be a list that is not empty");
  if (!answers.every(isAnswer)) throw new Error("each of answers must have status, headers and chunks");
  return cassette as Cassette;
}

const isAnswer = (answer: Partial<CassetteAnswer> | null): boolean =>
  Number.isInteger(answer?.status) &&
  typeof answer?.headers === "object" &&
  Array.isArray(answer.chunks) &&
  answer.chunks.every((chunk) => typeof (chunk?.base64 ?? chunk) === "string");

const UTF8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

function encodeChunk(bytes: Uint8Array): CassetteChunk {
  try {
    return UTF8.decode(bytes);
  } catch {
    // A chunk may end in the middle of a character.
    return { base64: Buffer.from(bytes).toString("base64") };
  }
}

export const decodeChunk = (chunk: CassetteChunk): Buffer =>
  typeof chunk === "string" ? Buffer.from(chunk) : Buffer.from(chunk.base64, "base64");

// Redacts what cassettes keep of bodies, as traces are redacted, but so that JSON stays JSON and every event of a stream is there.

type Hide = (text: string) => string;

const DECODERS: Readonly<Record<string, (bytes: Uint8Array) => Buffer>> = {
  gzip: gunzipSync,
  deflate: inflateSync,
  br: brotliDecompressSync,
};

/** A text of a request or an answer. What is JSON in itself, such as the arguments of a call, stays JSON. */
function cleanText(text: string, hide: Hide): string {
  const value = /^\s*[[{]/.test(text) ? parsed(text) : undefined;
  if (value === undefined) return redact(hide(text));
  const clean = JSON.stringify(cleanValue(value, hide));
  return clean === JSON.stringify(value) ? text : clean;
}

/** @param isSecretly whether the value is in a list that has the name of a secret */
function cleanValue(value: unknown, hide: Hide, isSecretly = false): unknown {
  if (typeof value === "string") return isSecretly && value !== "" ? BLANK : cleanText(value, hide);
  if (typeof value === "number")
    return Number.isInteger(value) && value > 1e13 && isCard(String(value)) ? BLANK : value;
  if (Array.isArray(value)) return value.map((item) => cleanValue(item, hide, isSecretly));
  if (!isObject(value)) return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, item]) => [key, cleanValue(item, hide, isSecretName(key))]),
  );
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/**
 * An answer without secrets. Its chunks are as they came where there was nothing to hide; one that was compressed is kept as text.
 *
 * @throws Error for an encoding that cannot be read
 */
export function cleanAnswer(
  status: number,
  { "content-encoding": encoding = "identity", ...headers }: Readonly<Record<string, string>>,
  bytes: readonly Uint8Array[],
  hide: Hide,
): CassetteAnswer {
  const whole = Buffer.concat(bytes);
  const decode = DECODERS[encoding];
  if (decode === undefined && encoding !== "identity") throw new Error(`it is encoded as ${encoding}`);
  const text = encodeChunk(decode === undefined || whole.length === 0 ? whole : decode(whole));
  if (typeof text !== "string") return { status, headers, chunks: bytes.map(encodeChunk) };
  const isStream = /^text\/event-stream/i.test(headers["content-type"] ?? "");
  const clean = isStream ? cleanEvents(text, hide) : cleanText(text, hide);
  if (clean === text && decode === undefined) return { status, headers, chunks: bytes.map(encodeChunk) };
  const chunks: CassetteChunk[] = isStream ? clean.split(/(?<=\n\r?\n)/) : [clean];
  return { status, headers, chunks };
}

/** Names under which events bring pieces of one text: what is to be hidden may go through several of them. */
const PIECES = /^(?:content|text|delta|arguments|partial_json|thinking|reasoning|reasoning_content|refusal)$/;
/** What tells the texts of one stream apart. */
const PLACES = ["type", "index", "output_index", "content_index", "summary_index", "item_id"] as const;

interface Piece {
  readonly holder: Record<string, unknown>;
  readonly key: string;
}

function cleanEvents(text: string, hide: Hide): string {
  const lines = text.split(/(?<=\n)/).map((line) => {
    const value = line.startsWith("data:") ? parsed(line.slice("data:".length)) : undefined;
    return { line, value, before: JSON.stringify(value) };
  });
  const pieces = new Map<string, Piece[]>();
  for (const { value } of lines) collectPieces(value, "", pieces);
  for (const group of pieces.values()) {
    const texts = group.map(({ holder, key }) => holder[key] as string);
    const joined = cleanText(texts.join(""), hide);
    if (joined === texts.map((each) => cleanText(each, hide)).join("")) continue;
    group.forEach(({ holder, key }, index) => {
      holder[key] = index === 0 ? joined : "";
    });
  }
  return lines
    .map(({ line, value, before }) => {
      if (value === undefined) return redact(hide(line));
      const after = JSON.stringify(cleanValue(value, hide));
      return after === before ? line : `data: ${after}${/\r?\n$/.exec(line)?.[0] ?? ""}`;
    })
    .join("");
}

function collectPieces(value: unknown, path: string, found: Map<string, Piece[]>): void {
  if (Array.isArray(value)) for (const item of value) collectPieces(item, `${path}[]`, found);
  if (!isObject(value)) return;
  const here = `${path} ${PLACES.map((name) => value[name])}`;
  for (const [key, item] of Object.entries(value)) {
    const at = `${here}.${key}`;
    if (typeof item !== "string" || !PIECES.test(key)) collectPieces(item, at, found);
    else if (found.has(at)) found.get(at)!.push({ holder: value, key });
    else found.set(at, [{ holder: value, key }]);
  }
}

/** The cassettes have no answer to a request. There is no retry and no fallback to another model, so that a test fails. */
export class AnswerNotRecorded extends Error {
  override readonly name = "AnswerNotRecorded";
}

// The part of a request that a cassette stores: no headers, and no secrets.

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
