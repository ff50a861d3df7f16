/** Decodes and checks input: JSON bodies, query strings, path parameters. */
import type { ErrorObject } from "ajv/dist/2020.js";
import { invalid, ServiceError } from "../lib/errors.ts";
import { type Fields, isObject } from "../lib/is-object.ts";
import { describeProblems } from "../lib/json-schema.ts";
import { changedInteger, parseExactly } from "../lib/large-integers.ts";
import { type BodyProblem, CROWDED, type Exchange } from "./exchange.ts";

/** Deepest nesting of arrays and objects in a body. */
export const MAX_JSON_DEPTH = 128;

export interface Validator {
  (value: unknown): boolean;
  errors?: ErrorObject[] | null;
}

export function isJsonType(contentType: string): boolean {
  if (contentType === "application/json") return true;
  const type = mediaTypeOf(contentType);
  return type === "application/json" || /^application\/[a-z0-9.!#$&^_-]+\+json$/.test(type);
}

const mediaTypeOf = (contentType: string): string => contentType.split(";", 1)[0]!.trim().toLowerCase();

/** Throws `unsupported_media_type` when there is a body of a type that is not JSON. */
export function requireJson(contentType: string, head: Pick<Exchange, "header">): void {
  if (contentType === "" || isJsonType(contentType)) return;
  const length = head.header("content-length");
  if ((length === "" || length === "0") && head.header("transfer-encoding") === "") return;
  const type = mediaTypeOf(contentType).slice(0, 80);
  throw new ServiceError("unsupported_media_type", `content-type must be application/json, not ${type}`);
}

/** The error for a body that could not be read. @param limit of one body, in bytes */
export function bodyFailure(problem: BodyProblem, limit: number): ServiceError {
  switch (problem) {
    case "too_large":
      return new ServiceError("too_large", `body is larger than ${limit} bytes`);
    case "crowded":
      return CROWDED;
    case "malformed":
      return invalid("body could not be read: its length or encoding is malformed");
    case "aborted":
      return invalid("body ended before its stated length");
  }
}

/**
 * Parses a JSON body.
 *
 * @param valuesLimit how many bytes of it may be outside of strings
 * @throws ServiceError `invalid_input` when it is not JSON or nested too deeply, `too_large` when it has too many values
 */
export function parseBody(bytes: Uint8Array, valuesLimit = Number.POSITIVE_INFINITY): unknown {
  if (bytes.length === 0) throw invalid("body is required: a JSON object");
  if (bytes.length > MAX_JSON_DEPTH * 2) {
    const { tooDeep, outside } = measure(bytes);
    if (tooDeep) throw invalid(`body is nested deeper than ${MAX_JSON_DEPTH} levels`);
    if (outside > valuesLimit)
      throw new ServiceError("too_large", `body has more than ${valuesLimit} bytes beside its texts`);
  }
  const text = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("utf8");
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw invalid(`body is not valid JSON: ${(error as Error).message.slice(0, 160)}`);
  }
  requireExact(text, "body");
  return value;
}

/** Throws `invalid_input` for JSON text with an integer that a number cannot hold. @param whole what the text is called */
export function requireExact(text: string, whole: string): void {
  const path = changedInteger(text);
  if (path !== null) throw invalid(`${path || whole} is too large for a number: send it as a string`);
}

/**
 * Parses JSON that is inside a string of a request, which the depth check of the body does not cover. Undefined when it is not JSON or
 * nested too deeply. Integers that a number cannot hold become strings, since a model or another server has written them.
 */
export function parseJsonText(text: string): unknown {
  if (text.length > MAX_JSON_DEPTH * 2 && isTooDeep(Buffer.from(text))) return undefined;
  try {
    return parseExactly(text);
  } catch {
    return undefined;
  }
}

/** Whether JSON text is nested deeper than `MAX_JSON_DEPTH`. For text that is not JSON the result means nothing. */
export const isTooDeep = (bytes: Uint8Array): boolean => measure(bytes).tooDeep;

/** Counts the bytes of JSON text outside of strings, quotes included. Stops counting where the nesting is too deep. */
function measure(bytes: Uint8Array): { tooDeep: boolean; outside: number } {
  let depth = 0;
  let outside = 0;
  for (let index = 0; index < bytes.length; index++) {
    const byte = bytes[index];
    outside++;
    if (byte === 0x22) {
      index = endOfText(bytes, index + 1);
      outside++;
    } else if (byte === 0x7b || byte === 0x5b) {
      if (++depth > MAX_JSON_DEPTH) return { tooDeep: true, outside };
    } else if (byte === 0x7d || byte === 0x5d) depth--;
  }
  return { tooDeep: false, outside };
}

/** Strings are read byte by byte up to this length, then with `indexOf`, which is faster for files and slower for words. */
const WORDS_LENGTH = 64;

/** The index of the closing quote of the string whose content begins at `index`. */
function endOfText(bytes: Uint8Array, index: number): number {
  let from = index;
  for (;;) {
    for (const near = from + WORDS_LENGTH; from < near && from < bytes.length; from++) {
      if (bytes[from] === 0x22) return from;
      if (bytes[from] === 0x5c) from++;
    }
    const quote = bytes.indexOf(0x22, from);
    if (quote === -1) return bytes.length;
    let backslashes = 0;
    while (quote - backslashes > from && bytes[quote - backslashes - 1] === 0x5c) backslashes++;
    if (backslashes % 2 === 0) return quote;
    from = quote + 1;
  }
}

/** Throws `invalid_input` with every problem, each naming its field. @param root name of the field that the value is in */
export function requireValid(check: Validator, value: unknown, root = ""): void {
  if (!check(value)) throw invalid(describeProblems(check.errors, root));
}

/** Parses a query string into an object of strings; of a repeated name the last value counts. */
export function parseQuery(query: string): Record<string, unknown> {
  const parsed: Record<string, unknown> = Object.create(null);
  if (query !== "") for (const [name, value] of new URLSearchParams(query)) parsed[name] = value;
  return parsed;
}

/** Path parameters by name, percent-decoded; throws `invalid_input` on a broken escape. */
export function decodeParameters(names: readonly string[], values: readonly string[]): Record<string, string> {
  // A plain object is safe, because the names come from the routes table; one without a prototype is many times slower to make.
  const parameters: Record<string, string> = {};
  for (let index = 0; index < names.length; index++) {
    const raw = values[index]!;
    parameters[names[index]!] = raw.includes("%") ? decode(names[index]!, raw) : raw;
  }
  return parameters;
}

function decode(name: string, raw: string): string {
  try {
    return decodeURIComponent(raw);
  } catch {
    throw invalid(`${name} in the path is not valid percent-encoding`);
  }
}

/** Copies the named headers, or all; one that was not sent is left out. */
export function readHeaders(exchange: Exchange, names: true | readonly string[]): Record<string, string> {
  if (names === true) return exchange.headers();
  const headers: Record<string, string> = {};
  for (const name of names) {
    const value = exchange.header(name);
    if (value !== "") headers[name] = value;
  }
  return headers;
}

/** The text in a field. @throws ServiceError `invalid_input` that names it when there is none */
export function textAt(fields: Fields, key: string, path: string): string {
  const value = fields[key];
  if (typeof value !== "string") throw invalid(`${path}.${key} must be string`);
  return value;
}

/**
 * The objects of a list, each with its place.
 *
 * @param kind what else may be there
 * @throws ServiceError `invalid_input` for what is no such list
 */
export function objectsIn(list: unknown, path: string, kind = "string or array"): [fields: Fields, path: string][] {
  if (!Array.isArray(list)) throw invalid(`${path} must be ${kind}`);
  return list.map((each, index) => {
    const here = `${path}[${index}]`;
    if (!isObject(each)) throw invalid(`${here} must be object`);
    return [each, here];
  });
}
