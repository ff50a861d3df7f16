/** Values of expressions as text, for headers, queries and paths. */

/** @throws Error beginning with `place` when the value is not text, a number or a boolean */
export function scalarText(value: unknown, place: () => string): string {
  if (typeof value === "string") return value;
  if (typeof value === "number" || typeof value === "boolean") return String(value);
  throw new Error(`${place()} must be text, a number or a boolean, not ${describeKind(value)}`);
}

function describeKind(value: unknown): string {
  if (value === null || value === undefined) return "null";
  return Array.isArray(value) ? "a list" : "an object";
}

/** Valid header values: visible ASCII, Latin-1, spaces and tabs; a line break would start another header. */
const HEADER_VALUE = /^[\t\x20-\x7e\x80-\xff]*$/;

/** @throws Error when the value is not valid in a header */
export function headerText(value: unknown, name: string): string {
  const text = scalarText(value, () => `headers.${name}`).trim();
  if (!HEADER_VALUE.test(text))
    throw new Error(`headers.${name} must not contain line breaks, control characters or characters beyond Latin-1`);
  return text;
}

/** Makes `a=1&a=2&b=%2F`: a list repeats its name, null is left out, an object is JSON text. */
export function queryText(values: Record<string, unknown>): string {
  return Object.entries(values)
    .flatMap(([name, value]) => (Array.isArray(value) ? value : [value]).map((item) => [name, item] as const))
    .filter(([, value]) => value !== null && value !== undefined)
    .map(
      ([name, value]) => `${encode(name)}=${encode(typeof value === "object" ? JSON.stringify(value) : String(value))}`,
    )
    .join("&");
}

/** Percent-encodes a text; an unpaired surrogate, which has no encoding, becomes the replacement character. */
export const encode = (text: string) => encodeURIComponent(text.toWellFormed());
