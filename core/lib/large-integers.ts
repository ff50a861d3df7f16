/** Integers beyond 2 ** 53 in JSON text: `JSON.parse` would round them, and nobody would see that an id is another one. */
import { isObject } from "./is-object.ts";

/** The shortest integer that may be too large has 16 digits. */
const MAY_BE_LARGE = /[0-9]{16}/;
const NUMBER = /-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?/y;
/** Bounds in a schema of a client may be those of 64-bit integers: they are advice, and rounding them does no harm. */
const BOUNDS: ReadonlySet<string> = new Set(["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"]);
const SCHEMAS: ReadonlySet<string> = new Set(["schema", "parameters", "inputSchema", "input_schema"]);

/** Parses JSON from a server or a model: integers that are not safe become strings. @throws SyntaxError when it is not JSON */
export const parseExactly = (text: string): unknown => JSON.parse(withTexts(text));

/** The same JSON text with such integers as strings. */
export const withTexts = (text: string): string =>
  MAY_BE_LARGE.test(text) ? replaced(text, (digits) => `"${digits}"`) : text;

/**
 * The path of the first integer that a parsed value would not give back as it came; null when there is none.
 *
 * @param text JSON, or one number with a sign
 */
export function changedInteger(text: string): string | null {
  if (!MAY_BE_LARGE.test(text)) return null;
  // No text of a client says this by chance.
  const mark = `\u0000${crypto.randomUUID()}`;
  let changed = false;
  const marked = replaced(text, (digits) => {
    if (isKept(digits)) return digits;
    changed = true;
    return JSON.stringify(mark);
  });
  return changed ? pathOf(JSON.parse(marked), mark, "", false) : null;
}

function isKept(digits: string): boolean {
  const value = Number(digits);
  return String(value) === digits || (Number.isFinite(value) && BigInt(value) === BigInt(digits));
}

function pathOf(value: unknown, mark: string, path: string, inSchema: boolean): string | null {
  if (value === mark) return path;
  if (!isObject(value) && !Array.isArray(value)) return null;
  for (const [key, item] of Object.entries(value)) {
    if (inSchema && item === mark && BOUNDS.has(key)) continue;
    const name = Array.isArray(value) ? `[${key}]` : path === "" ? key : `.${key}`;
    const found = pathOf(item, mark, path + name, inSchema || SCHEMAS.has(key));
    if (found !== null) return found;
  }
  return null;
}

/** The text with each integer that is not safe replaced. Text that is not JSON stays text that is not JSON. */
function replaced(text: string, replace: (digits: string) => string): string {
  let result = "";
  let copied = 0;
  for (let index = 0; index < text.length; ) {
    const code = text.charCodeAt(index);
    if (code === 0x22) index = endOfString(text, index + 1) + 1;
    else if (code === 0x2d || (code >= 0x30 && code <= 0x39)) {
      NUMBER.lastIndex = index;
      const [digits] = NUMBER.exec(text) ?? [text[index]!];
      if (/^-?\d{16,}$/.test(digits) && !Number.isSafeInteger(Number(digits))) {
        result += text.slice(copied, index) + replace(digits);
        copied = index + digits.length;
      }
      index += digits.length;
    } else index++;
  }
  return result + text.slice(copied);
}

/** The index of the closing quote of the string whose content begins at `start`. */
function endOfString(text: string, start: number): number {
  for (let from = start; ; ) {
    const quote = text.indexOf('"', from);
    if (quote === -1) return text.length;
    let backslashes = 0;
    while (quote - backslashes > from && text[quote - backslashes - 1] === "\\") backslashes++;
    if (backslashes % 2 === 0) return quote;
    from = quote + 1;
  }
}
