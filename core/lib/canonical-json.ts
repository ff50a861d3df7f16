/** The canonical text of a JSON value, independent of the order of its keys. */
import { isObject } from "./is-object.ts";

/** Returns the same text for equal values, and different texts for different ones. Undefined counts as null, as in a JSON list. */
export function canonicalJson(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonicalJson).join()}]`;
  // The `=` prevents a denial of service: V8 hashes strings of digits by their value, so a client could make all of them collide.
  if (!isObject(value)) return `=${JSON.stringify(value ?? null)}`;
  const members = Object.entries(value)
    .filter(([, member]) => member !== undefined)
    .sort(([a], [b]) => (a < b ? -1 : 1));
  return `{${members.map(([key, member]) => `${JSON.stringify(key)}:${canonicalJson(member)}`).join()}}`;
}

// Copies JSON values, so that tools and plugins may change their arguments.

/** A deep copy of a value that is JSON. */
export function cloneJson<T>(value: T): T {
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) {
    const list = value.slice();
    for (let index = 0; index < list.length; index++) {
      const item: unknown = list[index];
      if (typeof item === "object" && item !== null) list[index] = cloneJson(item);
    }
    return list as T;
  }
  // A spread copies a key `__proto__`, which clients may send, as an ordinary key, as it is in JSON.
  const copy = { ...value } as Record<string, unknown>;
  for (const key in copy) {
    const item = copy[key];
    if (typeof item === "object" && item !== null) copy[key] = cloneJson(item);
  }
  return copy as T;
}
