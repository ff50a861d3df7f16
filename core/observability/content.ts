/**
 * Prepares inputs and outputs for spans: JSON text of bounded length, without secrets. A long value is cut before it is redacted, so
 * that the time for a value does not depend on its size.
 */
import { isSecretName, secretPattern } from "../lib/secrets.ts";
import { BLANK, isCard, redact } from "./redaction.ts";

export type ContentMode = "none" | "redacted" | "full";

/** Longest content of one value. */
export const MAX_CONTENT_CHARACTERS = 8 * 1024;
/** Longest message of an error. */
const MAX_MESSAGE_CHARACTERS = 512;
/**
 * Characters after the cut that are redacted too, and then dropped, so that a secret at the cut is recognized. Their number depends on
 * the longest known secret, within these bounds.
 */
const MIN_LOOKAHEAD = 256;
const MAX_LOOKAHEAD = 8 * 1024;
/** Deepest nesting of objects. */
const MAX_DEPTH = 12;
const CUT = "…";
/** A list ends before an object that would get fewer characters: what begins has room for its names. */
const MIN_OBJECT = 256;

export interface Cleaner {
  readonly mode: ContentMode;
  /** @returns JSON text; a string is returned as plain text. Undefined when nothing is to be recorded */
  content(value: unknown): string | undefined;
  /** Redacts a message for people. */
  message(text: string): string;
}

/** @param secrets of the manifest: blanked wherever they occur */
export function createCleaner(mode: ContentMode, secrets: readonly string[]): Cleaner {
  const known = secretPattern(secrets);
  const blank = known === null ? redact : (text: string) => redact(text.replace(known, BLANK));
  const clean = mode === "full" ? (text: string) => text : remembering(blank);
  const lookahead = lookaheadFor(secrets);
  return {
    mode,
    content(value) {
      if (mode === "none" || value === undefined) return undefined;
      if (typeof value === "string") return cut(value, MAX_CONTENT_CHARACTERS, clean, lookahead);
      try {
        return new Writer(clean, mode === "full", lookahead).write(value);
      } catch {
        return "[unreadable]";
      }
    },
    // A message is not content: it is recorded even with `none`, and always without secrets.
    message: (text) => cut(text, MAX_MESSAGE_CHARACTERS, blank, lookahead),
  };
}

/** How many characters after a cut have to be redacted too, given these secrets. */
export function lookaheadFor(secrets: readonly string[]): number {
  const longest = secrets.reduce((most, { length }) => Math.max(most, length), 0);
  return Math.min(MAX_LOOKAHEAD, Math.max(MIN_LOOKAHEAD, 2 * longest));
}

/** Caches the last text: the answer of a model is often the answer of its agent too, and is redacted twice in a row. */
function remembering(blank: (text: string) => string): (text: string) => string {
  let last = "";
  let cleaned = "";
  return (text) => {
    if (text !== last) {
      cleaned = blank(text);
      last = text;
    }
    return cleaned;
  };
}

/** At most `most` characters of a text, with `…` when there is more. */
export function cut(text: string, most: number, clean: (text: string) => string, lookahead: number): string {
  if (text.length <= most) return clean(text);
  const seen = clean(text.slice(0, most + lookahead));
  // Drop the end, which comes from the characters after the cut.
  return seen.slice(0, Math.min(most, Math.max(0, seen.length - lookahead))) + CUT;
}

/** Writes a value as JSON until there is no room left. */
class Writer {
  readonly #clean: (text: string) => string;
  readonly #full: boolean;
  readonly #lookahead: number;
  #text = "";

  constructor(clean: (text: string) => string, full: boolean, lookahead: number) {
    this.#clean = clean;
    this.#full = full;
    this.#lookahead = lookahead;
  }

  write(value: unknown): string {
    this.#value(value, 0);
    return this.#text;
  }

  get #room(): number {
    return MAX_CONTENT_CHARACTERS - this.#text.length;
  }

  #value(value: unknown, depth: number): void {
    if (this.#room <= 0) this.#text += `"${CUT}"`;
    else if (typeof value === "string")
      this.#text += JSON.stringify(cut(value, this.#room, this.#clean, this.#lookahead));
    else if (typeof value === "number") this.#number(value);
    else if (typeof value === "object" && value !== null) this.#object(value, depth);
    else this.#text += typeof value === "boolean" ? String(value) : typeof value === "bigint" ? `"${value}"` : "null";
  }

  #number(value: number): void {
    const text = String(value);
    const secret = !this.#full && text.length >= 14 && /^\d+$/.test(text) && isCard(text);
    this.#text += secret ? `"${BLANK}"` : Number.isFinite(value) ? text : "null";
  }

  #object(value: object, depth: number): void {
    const { toJSON } = value as { toJSON?: unknown };
    if (depth >= MAX_DEPTH) this.#text += `"${CUT}"`;
    else if (ArrayBuffer.isView(value)) this.#text += `"[${value.byteLength} bytes]"`;
    else if (typeof toJSON === "function") this.#value(toJSON.call(value, ""), depth + 1);
    else if (Array.isArray(value)) this.#array(value, depth);
    else this.#members(value as Record<string, unknown>, depth);
  }

  #array(values: readonly unknown[], depth: number): void {
    const name = values[0];
    // A pair `["authorization", "..."]`, as in lists of headers.
    const pair = !this.#full && values.length === 2 && typeof name === "string" && isSecretName(name);
    this.#text += "[";
    for (let index = 0; index < values.length; index++) {
      if (this.#room < MIN_OBJECT && typeof values[index] === "object") break;
      if (index > 0) this.#text += ",";
      if (pair && index === 1) this.#text += `"${BLANK}"`;
      else this.#value(values[index], depth + 1);
      if (this.#room <= 0) break;
    }
    this.#text += "]";
  }

  #members(values: Record<string, unknown>, depth: number): void {
    // An object `{"name": "authorization", "value": "..."}`, as in lists of headers.
    const label = values.name ?? values.key;
    const pair = !this.#full && typeof label === "string" && isSecretName(label);
    this.#text += "{";
    let first = true;
    for (const name in values) {
      const value = values[name];
      if (value === undefined || typeof value === "function") continue;
      if (!first) this.#text += ",";
      first = false;
      this.#text += `${JSON.stringify(cut(name, Math.min(MAX_MESSAGE_CHARACTERS, Math.max(this.#room, 0)), this.#clean, this.#lookahead))}:`;
      const secret = !this.#full && (isSecretName(name) || (pair && name === "value"));
      if (secret && value !== null) this.#text += `"${BLANK}"`;
      else this.#value(value, depth + 1);
      if (this.#room <= 0) break;
    }
    this.#text += "}";
  }
}
