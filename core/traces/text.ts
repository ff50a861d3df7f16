/** Values as JSON text that holds no character beyond Latin-1: as many bytes as characters, and a cheap copy. */
import type { AttributeValue } from "../observability/span.ts";

const WIDE = /[^\0-\xff]/;
const EVERY_WIDE = /[^\0-\xff]/g;

export function latin1Json(value: string | object): string {
  const json = JSON.stringify(value);
  return WIDE.test(json) ? json.replace(EVERY_WIDE, escaped) : json;
}

/** One code unit. */
const escaped = (unit: string): string => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`;

/** What there is not is null, and so are numbers that JSON has no word for. */
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
