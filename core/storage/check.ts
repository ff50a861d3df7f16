/** Checks of arguments that all engines make first: these are mistakes of the caller, not failures of the store. */
import { checkKey } from "./encoding.ts";
import type { Commit, Range, Tail } from "./store.ts";

/** Rows that a scan may skip. Only pages by number skip rows, and each costs as much as a row that is read. */
export const MAX_SKIPPED_ROWS = 100_000;

/** Control characters that JSON text never contains. Engines use them as separators, and PostgreSQL refuses NUL. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: the pattern looks for control characters
const CONTROL = /[\0\x1e\x1f]/;

/** @throws TypeError for invalid keys, and values that are not JSON text */
export function checkCommit(commit: Commit): void {
  for (const [key, value] of commit.put ?? []) {
    checkKey(key);
    if (typeof value !== "string" || CONTROL.test(value)) throw new TypeError(`the value of ${key} is not JSON text`);
  }
  for (const [key, delta] of commit.add ?? []) {
    checkKey(key);
    if (commit.put?.some(([other]) => other === key)) throw new TypeError(`${key} is put and added to in one commit`);
    if (!Number.isSafeInteger(delta)) throw new TypeError(`${key} cannot count by ${delta}`);
  }
  for (const key of commit.delete ?? []) checkKey(key);
  // An empty prefix would delete everything, which is surely a mistake.
  for (const prefix of commit.clear ?? []) checkKey(prefix);
  for (const [key] of commit.expect ?? []) checkKey(key);
}

/** @throws TypeError for an invalid prefix, and numbers that are out of bounds */
export function checkRange({ prefix, limit, skip = 0 }: Range): void {
  checkKey(prefix);
  if (!Number.isSafeInteger(limit) || limit < 0) throw new TypeError(`limit must be a number of rows, not ${limit}`);
  if (!Number.isSafeInteger(skip) || skip < 0 || skip > MAX_SKIPPED_ROWS) {
    throw new TypeError(`skip must be from 0 to ${MAX_SKIPPED_ROWS}, not ${skip}`);
  }
}

/** @throws TypeError for invalid keys, and a number that is out of bounds */
export function checkTail(tail: Tail): void {
  checkRange(tail);
  if (tail.limit === 0) throw new TypeError("limit of a tail must be at least 1");
  checkKey(tail.otherKey);
}

/** @throws Error when the row `key` is not a counter, or the sum is too large */
export function addToCounter(key: string, value: string, delta: number): string {
  const sum = Number(value) + delta;
  if (!Number.isSafeInteger(sum)) throw new Error(`${key} is not a counter, or its sum is too large for a number`);
  return String(sum);
}
