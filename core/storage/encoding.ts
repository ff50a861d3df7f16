/** Parts of keys: visible ASCII without `/`, so that every engine orders them alike. Keys are parts joined by `/`. */
import { createHash } from "node:crypto";
import type { Range } from "./store.ts";

const DIGITS = 9;
/** 36 ** 9: milliseconds since 1970 until the year 5188, and more rows than a disk holds. */
export const NUMBER_LIMIT = 36 ** DIGITS;

/** Longest part that `text` gives, so that two of them and some numbers are a key. */
const TEXT_LIMIT = 200;
/** How much of a longer text stays readable before its digest. */
const READABLE = 100;

const PLAIN = /^[!-$&-.0-~]{0,200}$/;
const SPECIAL = /[^!-$&-.0-~]/gu;
/** 512 bytes at most: what every engine takes, with room in PostgreSQL's index. */
const KEY_LIMIT = 512;
const KEY = /^[!-~]+$/;

/** Numbers whose digits are kept, each in a place of its own: one commit needs the same few many times. */
const KEPT = 1024;
const keptNumbers: number[] = new Array(KEPT).fill(-1);
const keptDigits: string[] = new Array(KEPT).fill("");

/**
 * Nine digits of base 36: as text in the same order as the numbers.
 * @throws RangeError unless `value` is an integer from 0 to 36 ** 9 - 1
 */
export function encodeNumber(value: number): string {
  const place = value % KEPT;
  if (keptNumbers[place] === value) return keptDigits[place] as string;
  if (!Number.isInteger(value) || value < 0 || value >= NUMBER_LIMIT) {
    throw new RangeError(`a key cannot hold the number ${value}`);
  }
  const digits = value.toString(36).padStart(DIGITS, "0");
  keptNumbers[place] = value;
  keptDigits[place] = digits;
  return digits;
}

/** The number of `number`. */
export const decodeNumber = (part: string): number => Number.parseInt(part, 36);

/**
 * Any string as a part of a key of at most 200 bytes; differing strings give differing parts. Up to 200 bytes it is the
 * percent-encoded text, beyond that a readable beginning and a SHA-256 digest. Order is that of the text for visible ASCII only.
 */
export function encodeText(value: string): string {
  if (PLAIN.test(value)) return value;
  const encoded = value.replace(SPECIAL, percent);
  if (encoded.length <= TEXT_LIMIT) return encoded;
  // `%~` is no percent code, so that no short text gives the same.
  return `${encoded.slice(0, READABLE)}%~${digestOf(value)}`;
}

/** Longest part that `shortText` gives, so that there is room for two of `text` beside it. */
const SHORT_LIMIT = 100;

/** Any string as a part of a key of at most 100 bytes; differing strings give differing parts. */
export function encodeShortText(value: string): string {
  const encoded = encodeText(value);
  // `text` begins with readable characters, never with this mark.
  return encoded.length <= SHORT_LIMIT ? encoded : `%~${digestOf(value)}`;
}

const digestOf = (value: string): string => createHash("sha256").update(value, "utf16le").digest("base64url");

/** One character, in UTF-8; half a surrogate pair has none and keeps its code unit (`%u` is no percent code). */
function percent(character: string): string {
  const unit = character.charCodeAt(0);
  if (character.length === 1 && unit >= 0xd800 && unit <= 0xdfff) return `%u${unit.toString(16)}`;
  let out = "";
  for (const byte of Buffer.from(character, "utf8")) out += `%${byte.toString(16).padStart(2, "0")}`;
  return out;
}

/** Where the keys that begin with `prefix` end (exclusive): keys are visible ASCII, and DEL comes after it. */
export const prefixEnd = (prefix: string): string => `${prefix}\x7f`;

/** The keys of a range: from `low` to before `high`. Nothing lies between a key and the key with `!`, the first visible character. */
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
  if (key.length > KEY_LIMIT || !KEY.test(key))
    throw new TypeError(`not a key of the store: ${JSON.stringify(key.slice(0, 80))}`);
}
