/** A cassette: one request to a provider and its answers. The file is YAML, so that people can read and compare it. */
import { createHash } from "node:crypto";
import { parse, stringify } from "yaml";
import { canonicalJson } from "../../lib/canonical-json.ts";

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
export type CassetteChunk = string | { readonly base64: string };

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

export function encodeChunk(bytes: Uint8Array): CassetteChunk {
  try {
    return UTF8.decode(bytes);
  } catch {
    // A chunk may end in the middle of a character.
    return { base64: Buffer.from(bytes).toString("base64") };
  }
}

export const decodeChunk = (chunk: CassetteChunk): Buffer =>
  typeof chunk === "string" ? Buffer.from(chunk) : Buffer.from(chunk.base64, "base64");
