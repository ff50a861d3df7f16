/** Warns about keys in `options` of a request that nothing reads: they are ignored, but a misspelt key should not go unnoticed. */
import { type OptionNames, optionNames } from "../../generated/option-names.ts";
import { isObject } from "../lib/is-object.ts";
import { suggest } from "../manifest/issues.ts";
import { NO_WARNINGS } from "./call-settings.ts";
import type { HeaderList } from "./exchange.ts";

/** Bounds of the warning, in keys and in characters of each key: clients choose both. */
const MAX_NAMES = 8;
const MAX_NAME_CHARACTERS = 64;

/**
 * The header `x-warning` for a body that has passed validation; no header when all keys are known.
 *
 * @param schema name of the body's schema
 */
export function warnOfOptions(schema: string | undefined, body: unknown): HeaderList {
  const known = schema === undefined ? undefined : optionNames[schema];
  const options = known === undefined ? undefined : (body as { options?: unknown }).options;
  if (known === undefined || options === undefined) return NO_WARNINGS;
  const unknown: string[] = [];
  collect(options, known, "", unknown);
  if (unknown.length === 0) return NO_WARNINGS;
  const more = unknown.length > MAX_NAMES ? ", ..." : "";
  return ["x-warning", `unknown keys in options are ignored: ${unknown.slice(0, MAX_NAMES).join(", ")}${more}`];
}

function collect(options: unknown, known: OptionNames, path: string, unknown: string[]): void {
  if (!isObject(options)) return;
  for (const key in options) {
    if (unknown.length > MAX_NAMES) return;
    const names = Object.hasOwn(known, key) ? known[key] : undefined;
    if (names === undefined) unknown.push(described(key, path, known));
    else if (names !== true) collect(options[key], names, `${path}${key}.`, unknown);
  }
}

function described(key: string, path: string, known: OptionNames): string {
  const name = key.length > MAX_NAME_CHARACTERS ? `${key.slice(0, MAX_NAME_CHARACTERS)}...` : key;
  const near = suggest(name, Object.keys(known));
  // Only visible ASCII: a line break would end the header.
  return `${path}${name}`.replace(/[^\x21-\x7e]/g, "?") + (near === undefined ? "" : ` (did you mean ${near}?)`);
}
