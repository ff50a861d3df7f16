/** Schemas of an OpenAPI 3 document as standalone JSON Schemas: references are resolved, and keywords for documentation are left out. */
import { isObject } from "../lib/is-object.ts";
import type { JsonSchema } from "../lib/json-schema.ts";

/** Why an operation cannot be a tool. */
export class Unmapped extends Error {}

/** Escapes a text of the document for a manifest, where it must not refer to the environment. */
export const literal = (text: string): string => text.split("${").join("$${");

const MAPS = ["properties", "patternProperties"];
const LISTS = ["allOf", "anyOf", "oneOf", "prefixItems"];
const SINGLES = ["items", "additionalProperties", "not"];
const PLAIN = [
  ...["type", "enum", "const", "default", "title", "required", "pattern", "minLength", "maxLength", "multipleOf"],
  ...["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minItems", "maxItems", "uniqueItems"],
  ...["minProperties", "maxProperties"],
];
/** Formats that are validated. Others, such as `int64`, say nothing about the text. */
const FORMATS = ["date-time", "date", "time", "email", "uri", "uuid", "ipv4", "ipv6", "hostname"];
const MAX_DEPTH = 12;
const MAX_DESCRIPTION = 500;

/** Resolves a `$ref` within this document; returns any other value unchanged. */
export function resolvePointer(document: JsonSchema, value: unknown): unknown {
  let found = value;
  for (let steps = 0; isObject(found) && typeof found.$ref === "string"; steps++) {
    const reference = found.$ref;
    if (!reference.startsWith("#/")) throw new Unmapped(`${reference} is in another file: bundle the document first`);
    if (steps === MAX_DEPTH) throw new Unmapped(`${reference} refers to itself`);
    const parts = reference.slice(2).split("/");
    found = parts.reduce<unknown>((node, part) => {
      const key = decodeURIComponent(part).replaceAll("~1", "/").replaceAll("~0", "~");
      return isObject(node) && Object.hasOwn(node, key) ? node[key] : undefined;
    }, document);
    if (found === undefined) throw new Unmapped(`${reference} leads to nothing`);
  }
  return found;
}

export function toJsonSchema(document: JsonSchema, value: unknown, depth = 0): unknown {
  if (depth > MAX_DEPTH) throw new Unmapped("a schema of it refers to itself, or is very deep");
  const schema = resolvePointer(document, value);
  if (!isObject(schema)) return typeof schema === "boolean" ? schema : {};
  const inner = (each: unknown) => toJsonSchema(document, each, depth + 1);
  const result: JsonSchema = {};
  if (typeof schema.description === "string")
    result.description = literal(schema.description.slice(0, MAX_DESCRIPTION));
  for (const [key, content] of Object.entries(schema)) {
    if (PLAIN.includes(key)) result[key] = escaped(content);
    else if (SINGLES.includes(key)) result[key] = inner(content);
    else if (LISTS.includes(key) && Array.isArray(content)) result[key] = content.map(inner);
    else if (MAPS.includes(key) && isObject(content)) result[key] = mapped(content, inner);
    else if (key === "format" && FORMATS.includes(String(content))) result.format = content;
  }
  if (isObject(result.properties) && isObject(schema.properties) && Array.isArray(result.required)) {
    const left = Object.keys(schema.properties).filter((name) => !Object.hasOwn(result.properties as object, name));
    result.required = result.required.filter((name) => !left.includes(name));
  }
  // Keywords that OpenAPI 3.0 defines differently from JSON Schema.
  if (schema.nullable === true) {
    if (result.type !== undefined) result.type = [result.type, "null"].flat();
    if (Array.isArray(result.enum)) result.enum = [...new Set([...result.enum, null])];
  }
  for (const [exclusive, bound] of [
    ["exclusiveMinimum", "minimum"],
    ["exclusiveMaximum", "maximum"],
  ] as const) {
    if (typeof result[exclusive] !== "boolean") continue;
    if (result[exclusive] === true) result[exclusive] = result[bound];
    else delete result[exclusive];
    if (schema[exclusive] === true) delete result[bound];
  }
  return result;
}

/** Maps the properties, without read-only ones, which a client cannot set. */
const mapped = (schemas: JsonSchema, inner: (each: unknown) => unknown): JsonSchema =>
  Object.fromEntries(
    Object.entries(schemas)
      .filter(([, each]) => !(isObject(each) && each.readOnly === true))
      .map(([name, each]) => [name, inner(each)]),
  );

const escaped = (value: unknown): unknown =>
  JSON.parse(JSON.stringify(value), (_key, each) => (typeof each === "string" ? literal(each) : each));
