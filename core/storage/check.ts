/** What engines refuse before anything happens: mistakes of the caller, not of the store. */
import { checkKey } from "./encoding.ts";
import type { Commit, Range, Tail } from "./store.ts";

/** Rows that a scan may pass over: pages by number only, and each costs as much as a row that is read. */
export const MAX_SKIPPED_ROWS = 100_000;

/** Control characters that JSON text never holds; engines separate rows with them, and PostgreSQL refuses NUL. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what it looks for
const CONTROL = /[\0\x1e\x1f]/;

/** @throws TypeError for keys that are none, and values that are no JSON text */
export function checkCommit(commit: Commit): void {
  for (const [key, value] of commit.put ?? []) {
    checkKey(key);
    if (typeof value !== "string" || CONTROL.test(value)) throw new TypeError(`the value of ${key} is no JSON text`);
  }
  for (const [key, delta] of commit.add ?? []) {
    checkKey(key);
    if (commit.put?.some(([other]) => other === key)) throw new TypeError(`${key} is put and added to in one commit`);
    if (!Number.isSafeInteger(delta)) throw new TypeError(`${key} cannot count by ${delta}`);
  }
  for (const key of commit.delete ?? []) checkKey(key);
  // An empty prefix is everything, which nobody means.
  for (const prefix of commit.clear ?? []) checkKey(prefix);
  for (const [key] of commit.expect ?? []) checkKey(key);
}

/** @throws TypeError for a prefix that is none, and numbers that are out of bounds */
export function checkRange({ prefix, limit, skip = 0 }: Range): void {
  checkKey(prefix);
  if (!Number.isSafeInteger(limit) || limit < 0) throw new TypeError(`limit ${limit} is no count of rows`);
  if (!Number.isSafeInteger(skip) || skip < 0 || skip > MAX_SKIPPED_ROWS) {
    throw new TypeError(`skip must be from 0 to ${MAX_SKIPPED_ROWS}, not ${skip}`);
  }
}

/** @throws TypeError for keys that are none, and a number that is out of bounds */
export function checkTail(tail: Tail): void {
  checkRange(tail);
  if (tail.limit === 0) throw new TypeError("limit 0 is no tail");
  checkKey(tail.beside);
}

/** @throws Error when the counter `key` holds something else than a number */
export function addToCounter(key: string, value: string, delta: number): string {
  const sum = Number(value) + delta;
  if (!Number.isSafeInteger(sum)) throw new Error(`${key} is no counter, or counts beyond what a number holds`);
  return String(sum);
}
