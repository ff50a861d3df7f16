/** Converts the result of an expression to JSON and to text. */

/**
 * A copy that contains only JSON: integers of CEL become numbers, times and durations become text.
 *
 * @throws RangeError for infinity, NaN and integers that a number cannot hold, which JSON does not have
 */
export function plainJson(value: unknown): unknown {
  if (typeof value === "number" && !Number.isFinite(value)) {
    throw new RangeError("gives a number that is not finite: something is divided by 0");
  }
  if (typeof value === "bigint") return exactNumber(value);
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) return value.map(plainJson);
  if (value instanceof Date) return value.toISOString();
  if (value instanceof Uint8Array) return Buffer.from(value).toString("base64");
  if (value instanceof Set) return [...value].map(plainJson);
  if (value instanceof Map) return plainEntries(value);
  const prototype: unknown = Object.getPrototypeOf(value);
  if (prototype === Object.prototype || prototype === null) return plainEntries(Object.entries(value));
  // Classes of CEL: an unsigned number, a duration, a type.
  const inner: unknown = value.valueOf();
  return typeof inner === "bigint" ? exactNumber(inner) : String(value);
}

/** @throws RangeError when a number cannot hold it */
export function exactNumber(integer: bigint): number {
  const number = Number(integer);
  if (BigInt(number) === integer) return number;
  throw new RangeError(`${integer} is too large for a number: write it as a string`);
}

const plainEntries = (entries: Iterable<[unknown, unknown]>): Record<string, unknown> =>
  Object.fromEntries([...entries].map(([key, item]) => [String(key), plainJson(item)]));

/**
 * Replaces objects that have a key `constructor`, at any depth, by Maps: CEL reads `constructor` to find the type of an object. Returns
 * the value itself when it contains no such object.
 */
export function withMaps<T>(value: T): T | Map<string, unknown> {
  if (typeof value !== "object" || value === null) return value;
  const entries = Object.entries(value).map(([key, item]) => [key, withMaps(item)] as const);
  if (!Array.isArray(value) && Object.hasOwn(value, "constructor")) return new Map(entries);
  const held = value as Record<string, unknown>;
  if (entries.every(([key, item]) => held[key] === item)) return value;
  return (Array.isArray(value) ? entries.map(([, item]) => item) : Object.fromEntries(entries)) as T;
}

/** A value inside a longer text: nothing for null, JSON for lists and maps. */
export function valueAsText(value: unknown): string {
  if (typeof value === "string") return value;
  if (value === null || value === undefined) return "";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}
