/** Encodes the parts of keys as visible ASCII without `/`, which every engine sorts alike. A key is parts joined by `/`. */
import { createHash } from "node:crypto";
import { canonicalJson } from "../lib/canonical-json.ts";
import type { Range } from "./store.ts";

const DIGITS = 9;
/** 36 ** 9: enough for milliseconds since 1970 until the year 5188, and for more rows than a disk can hold. */
export const NUMBER_LIMIT = 36 ** DIGITS;

/** Longest result of `encodeText`, so that two of them and some numbers fit into a key. */
const MAX_TEXT_BYTES = 200;
/** How much of a longer text stays readable, before its digest. */
const READABLE_BYTES = 100;

const PLAIN = /^[!-$&-.0-~]{0,200}$/;
const SPECIAL = /[^!-$&-.0-~]/gu;
/** Every engine takes keys of this length, also in PostgreSQL's index. */
const MAX_KEY_BYTES = 512;
const KEY = /^[!-~]+$/;

/** Slots of the cache of encoded numbers: one commit encodes the same few numbers many times. */
const CACHE_SLOTS = 1024;
const cachedNumbers: number[] = new Array(CACHE_SLOTS).fill(-1);
const cachedDigits: string[] = new Array(CACHE_SLOTS).fill("");

/**
 * Nine digits of base 36, so that the texts sort like the numbers.
 * @throws RangeError unless `value` is an integer from 0 to 36 ** 9 - 1
 */
export function encodeNumber(value: number): string {
  const slot = value % CACHE_SLOTS;
  if (cachedNumbers[slot] === value) return cachedDigits[slot] as string;
  if (!Number.isInteger(value) || value < 0 || value >= NUMBER_LIMIT) {
    throw new RangeError(`a key cannot hold the number ${value}`);
  }
  const digits = value.toString(36).padStart(DIGITS, "0");
  cachedNumbers[slot] = value;
  cachedDigits[slot] = digits;
  return digits;
}

/** The number that `encodeNumber` encoded. */
export const decodeNumber = (part: string): number => Number.parseInt(part, 36);

/**
 * Encodes any string as a part of a key of at most 200 bytes; different strings give different parts. The result is the percent-encoded
 * text or, where that is longer, its beginning and a SHA-256 digest. Only texts of visible ASCII keep their order.
 */
export function encodeText(value: string): string {
  if (PLAIN.test(value)) return value;
  const encoded = value.replace(SPECIAL, percent);
  if (encoded.length <= MAX_TEXT_BYTES) return encoded;
  // `%~` is not a valid percent code, so that no short text has the same encoding.
  return `${encoded.slice(0, READABLE_BYTES)}%~${digest(value)}`;
}

/** Longest result of `encodeShortText`, so that two results of `encodeText` fit beside it. */
const MAX_SHORT_TEXT_BYTES = 100;

/** Encodes any string as a part of a key of at most 100 bytes; different strings give different parts. */
export function encodeShortText(value: string): string {
  const encoded = encodeText(value);
  // No result of `encodeText` begins with `%~`.
  return encoded.length <= MAX_SHORT_TEXT_BYTES ? encoded : `%~${digest(value)}`;
}

const digest = (value: string): string => createHash("sha256").update(value, "utf16le").digest("base64url");

/** Percent-encodes one character in UTF-8. A lone surrogate has no UTF-8, and keeps its code unit as `%u`, which is no valid code. */
function percent(character: string): string {
  const unit = character.charCodeAt(0);
  if (character.length === 1 && unit >= 0xd800 && unit <= 0xdfff) return `%u${unit.toString(16)}`;
  let out = "";
  for (const byte of Buffer.from(character, "utf8")) out += `%${byte.toString(16).padStart(2, "0")}`;
  return out;
}

/** The exclusive end of the keys that begin with `prefix`: DEL sorts after all visible ASCII. */
export const prefixEnd = (prefix: string): string => `${prefix}\x7f`;

/** The keys of a range: `low` inclusive, `high` exclusive. `!` is the first visible character: no key lies between a key and the key plus `!`. */
export function keyBounds({ prefix, after, before }: Pick<Range, "prefix" | "after" | "before">): {
  low: string;
  high: string;
} {
  const end = prefixEnd(prefix);
  return {
    low: after !== undefined && after >= prefix ? `${after}!` : prefix,
    high: before !== undefined && before < end ? before : end,
  };
}

/** @throws TypeError unless it is 1 to 512 characters of visible ASCII */
export function checkKey(key: string): void {
  if (key.length > MAX_KEY_BYTES || !KEY.test(key))
    throw new TypeError(`not a key of the store: ${JSON.stringify(key.slice(0, 80))}`);
}

/** A digest of a JSON value, the same for equal ones. */
export const digestOf = (value: unknown): string =>
  createHash("sha256").update(canonicalJson(value)).digest("base64url");
