/** Redacts what cassettes keep of bodies, as traces are redacted, but so that JSON stays JSON and every event of a stream is there. */
import { brotliDecompressSync, gunzipSync, inflateSync } from "node:zlib";
import { isObject } from "../../lib/is-object.ts";
import { isSecretName } from "../../lib/secrets.ts";
import { BLANK, isCard, redact } from "../../observability/redaction.ts";
import type { CassetteAnswer, CassetteChunk } from "./cassette.ts";
import { encodeChunk } from "./cassette.ts";

type Hide = (text: string) => string;

const DECODERS: Readonly<Record<string, (bytes: Uint8Array) => Buffer>> = {
  gzip: gunzipSync,
  deflate: inflateSync,
  br: brotliDecompressSync,
};

/** A text of a request or an answer. What is JSON in itself, such as the arguments of a call, stays JSON. */
export function cleanText(text: string, hide: Hide): string {
  const value = /^\s*[[{]/.test(text) ? parsed(text) : undefined;
  if (value === undefined) return redact(hide(text));
  const clean = JSON.stringify(cleanValue(value, hide));
  return clean === JSON.stringify(value) ? text : clean;
}

/** @param isSecretly whether the value is in a list that has the name of a secret */
export function cleanValue(value: unknown, hide: Hide, isSecretly = false): unknown {
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
