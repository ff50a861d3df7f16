/** What a JSON Schema says about types, as a component of the OpenAPI document. What only a validator needs is left out. */
import { isObject } from "../lib/is-object.ts";
import type { JsonSchema } from "../lib/json-schema.ts";

const REFERENCE = "#/components/schemas/";

/** Keywords that hold schemas in a list, or one. All are keywords of types, as `properties` is. */
const LISTS = ["allOf", "anyOf", "oneOf", "prefixItems"];
const SINGLES = ["items", "additionalProperties"];
/** Keywords that are kept as they are. */
const PLAIN = ["type", "required", "enum", "description", "default", "deprecated"];
/** Where a schema keeps those that it refers to. */
const DEFINITIONS = ["$defs", "definitions"];

/** What becomes of a reference; null for one that leads nowhere that has a name. */
type Resolve = (reference: string) => string | null;

/** The schema, and those that it refers to within itself, as components whose names begin with `name`. */
export function typeComponents(name: string, schema: JsonSchema): Record<string, unknown> {
  const names = new Map([["#", name]]);
  const definitions = DEFINITIONS.flatMap((keyword) => {
    const map = schema[keyword];
    return isObject(map) ? Object.entries(map).map(([key, value]) => [`#/${keyword}/${key}`, value] as const) : [];
  });
  for (const [index, [pointer]] of definitions.entries()) names.set(pointer, `${name}.${index + 1}`);
  const resolve: Resolve = (reference) => {
    const found = names.get(unescapePointer(reference));
    return found === undefined ? null : REFERENCE + found;
  };
  const all = [["#", schema] as const, ...definitions];
  return Object.fromEntries(all.map(([pointer, each]) => [names.get(pointer), typeSchema(each, resolve)]));
}

/** `~1` and `~0` of a JSON pointer, and its percent signs. */
function unescapePointer(reference: string): string {
  const plain = /%[0-9a-f]{2}/i.test(reference) ? safelyDecoded(reference) : reference;
  return plain.replaceAll("~1", "/").replaceAll("~0", "~");
}

function safelyDecoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** A copy with the keywords of types alone. */
export function typeSchema(schema: unknown, resolve: Resolve): JsonSchema {
  if (!isObject(schema)) return {};
  if (typeof schema.$ref === "string") {
    const target = resolve(schema.$ref);
    return target === null ? {} : { $ref: target };
  }
  const inner = (value: unknown) => typeSchema(value, resolve);
  const copy: JsonSchema = {};
  for (const [key, value] of Object.entries(schema)) {
    if (PLAIN.includes(key)) copy[key] = value;
    else if (key === "properties" && isObject(value))
      copy[key] = Object.fromEntries(Object.entries(value).map(([name, each]) => [name, inner(each)]));
    else if (LISTS.includes(key) && Array.isArray(value)) copy[key] = value.map(inner);
    // Of draft 7: a schema for each place.
    else if (key === "items" && Array.isArray(value)) copy.prefixItems = value.map(inner);
    else if (SINGLES.includes(key)) copy[key] = typeof value === "boolean" ? value : inner(value);
  }
  // One value is a list of one, which may be null or an object.
  if ("const" in schema) copy.enum = [schema.const];
  if (hasMixedProperties(schema)) copy.additionalProperties = true;
  if ("enum" in copy) return literals(copy);
  return copy;
}

/** TypeScript would want the named properties, or those that fit no pattern, to have the type of the others too. */
const hasMixedProperties = ({ properties, patternProperties, additionalProperties }: JsonSchema): boolean =>
  isObject(patternProperties) || (isObject(properties) && isObject(additionalProperties));

/** A value that is one of some needs no other keyword, unless these are no simple values: then their types say less, but no wrong. */
function literals({ enum: values, description, ...rest }: JsonSchema): JsonSchema {
  const isSimple = Array.isArray(values) && values.every((value) => typeof value !== "object" || value === null);
  const described = description === undefined ? {} : { description };
  return isSimple ? { enum: values, ...described } : { ...rest, ...described };
}
