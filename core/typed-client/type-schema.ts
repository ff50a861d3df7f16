/** The parts of a JSON Schema that describe types, as a component of the OpenAPI document. Keywords for validation only are left out. */
import { isObject } from "../lib/is-object.ts";
import type { JsonSchema } from "../lib/json-schema.ts";

const REFERENCE = "#/components/schemas/";

/** Keywords whose value is a list of schemas, or one schema. */
const LISTS = ["allOf", "anyOf", "oneOf", "prefixItems"];
const SINGLES = ["items", "additionalProperties"];
/** Keywords that are copied unchanged. */
const PLAIN = ["type", "required", "enum", "description", "default", "deprecated"];
/** Keywords under which a schema keeps the schemas to which it refers. */
const DEFINITIONS = ["$defs", "definitions"];

/** Resolves a reference to a name; null when the target has none. */
type Resolve = (reference: string) => string | null;

/** The schema, and the schemas inside it to which it refers, as components whose names begin with `name`. */
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

/** Decodes the `~1`, `~0` and percent escapes of a JSON pointer. */
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

/** A copy that has only the keywords for types. */
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
    // A list is the form of draft 7, with one schema per position.
    else if (key === "items" && Array.isArray(value)) copy.prefixItems = value.map(inner);
    else if (SINGLES.includes(key)) copy[key] = typeof value === "boolean" ? value : inner(value);
  }
  // `const` becomes an `enum` with one value, which may be null or an object.
  if ("const" in schema) copy.enum = [schema.const];
  if (hasMixedProperties(schema)) copy.additionalProperties = true;
  if ("enum" in copy) return literals(copy);
  return copy;
}

/** Whether the types of properties would clash: TypeScript requires named properties to match the type of additional ones. */
const hasMixedProperties = ({ properties, patternProperties, additionalProperties }: JsonSchema): boolean =>
  isObject(patternProperties) || (isObject(properties) && isObject(additionalProperties));

/** An `enum` of simple values needs no other keyword. For other values it is dropped: the type is then less precise, but not wrong. */
function literals({ enum: values, description, ...rest }: JsonSchema): JsonSchema {
  const isSimple = Array.isArray(values) && values.every((value) => typeof value !== "object" || value === null);
  const described = description === undefined ? {} : { description };
  return isSimple ? { enum: values, ...described } : { ...rest, ...described };
}
