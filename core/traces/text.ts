/** Writes values as JSON text that uses only Latin-1 characters, so that it has as many bytes as characters and is cheap to copy. */
import type { AttributeValue } from "../observability/span.ts";

const NON_LATIN1 = /[^\0-\xff]/;
const ALL_NON_LATIN1 = /[^\0-\xff]/g;

export function latin1Json(value: string | object | null): string {
  const json = JSON.stringify(value);
  return NON_LATIN1.test(json) ? json.replace(ALL_NON_LATIN1, escapeUnit) : json;
}

/** Escapes one UTF-16 code unit. */
const escapeUnit = (unit: string): string => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`;

/** The JSON of a value. Undefined becomes null, and so do numbers that JSON cannot express. */
export function valueText(value: AttributeValue | undefined): string {
  if (value === undefined) return "null";
  if (typeof value === "number") return Number.isFinite(value) ? String(value) : "null";
  if (typeof value === "boolean") return value ? "true" : "false";
  return latin1Json(value);
}

export function sameValue(one: AttributeValue | undefined, other: AttributeValue | undefined): boolean {
  if (one === other) return true;
  if (!Array.isArray(one) || !Array.isArray(other) || one.length !== other.length) return false;
  return one.every((item, index) => item === other[index]);
}
