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
