/** Reads the definitions of `schemas/`. What they make of code, types and validators, is in `generated/`. */
import { readdirSync, readFileSync } from "node:fs";
import type { JsonSchema } from "../lib/json-schema.ts";

const REFERENCE = /(?<="\$ref": ")[^"]*#\/\$defs\//g;

/**
 * @param groups folders of `schemas/`
 * @param prefix of references: each is the prefix and a name
 * @returns the schemas by name, without what is for the generator of types alone
 */
export function readDefinitions(groups: readonly string[], prefix: string): Record<string, JsonSchema> {
  const found = groups.flatMap((group) => {
    const folder = new URL(`../../schemas/${group}/`, import.meta.url);
    const files = readdirSync(folder).filter((file) => file.endsWith(".json"));
    return files.flatMap((file) => {
      const text = readFileSync(new URL(file, folder), "utf8").replaceAll(REFERENCE, prefix);
      return Object.entries<JsonSchema>(JSON.parse(text, (key, value) => (key === "tsType" ? undefined : value)).$defs);
    });
  });
  return Object.fromEntries(found.sort(([one], [other]) => (one < other ? -1 : 1)));
}
