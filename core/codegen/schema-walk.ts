/** Walks JSON Schemas along the keywords that contain schemas, so that a property named `title` is not mistaken for the keyword. */
import { isObject } from "../lib/is-object.ts";
import type { JsonSchema } from "../lib/json-schema.ts";

const MAPS = ["properties", "patternProperties", "$defs", "dependentSchemas"];
const LISTS = ["allOf", "anyOf", "oneOf"];
const SINGLES = ["items", "additionalProperties", "propertyNames", "contains", "not", "if", "then", "else"];

/** A copy of `schema` with `change` applied to every direct subschema. */
export function mapSubschemas(schema: JsonSchema, change: (subschema: JsonSchema) => JsonSchema): JsonSchema {
  const apply = (value: unknown) => (isObject(value) ? change(value) : value);
  const copy: JsonSchema = {};
  for (const [key, value] of Object.entries(schema)) {
    if (MAPS.includes(key) && isObject(value)) {
      copy[key] = Object.fromEntries(Object.entries(value).map(([name, subschema]) => [name, apply(subschema)]));
    } else if (LISTS.includes(key) && Array.isArray(value)) copy[key] = value.map(apply);
    else copy[key] = SINGLES.includes(key) ? apply(value) : value;
  }
  return copy;
}

/** The name of the definition that a `$ref` points to: `common.json#/$defs/User` -> `User`; null for anything else. */
export function referencedName(reference: unknown): string | null {
  return typeof reference === "string" ? (/#\/\$defs\/([A-Za-z0-9]+)$/.exec(reference)?.[1] ?? null) : null;
}

/** A copy with every `$ref` rewritten to `prefix + name`. */
export function rewriteReferences(schema: JsonSchema, prefix: string): JsonSchema {
  const name = referencedName(schema.$ref);
  const copy = mapSubschemas(schema, (subschema) => rewriteReferences(subschema, prefix));
  return name === null ? copy : { ...copy, $ref: prefix + name };
}
