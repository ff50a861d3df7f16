/** OpenAI's strict mode refuses schemas that do not forbid and require everything: ask for it only where it can work. */
import { isObject } from "../../lib/is-object.ts";

type Node = Record<string, unknown>;

/** Keywords that strict mode does not know. */
const UNKNOWN = [
  "allOf",
  "not",
  "if",
  "then",
  "else",
  "oneOf",
  "dependentRequired",
  "dependentSchemas",
  "patternProperties",
];
const LISTS = ["anyOf", "prefixItems"];
const MAPS = ["properties", "$defs", "definitions"];

const isNode = (value: unknown): value is Node => isObject(value);

/** Whether every object of the schema lists all its properties as required and allows no others. */
export function canBeStrict(schema: unknown): boolean {
  if (!isNode(schema)) return false;
  if (UNKNOWN.some((keyword) => keyword in schema)) return false;
  if (isObjectSchema(schema) && !isClosed(schema)) return false;
  const below = [
    ...MAPS.flatMap((keyword) => (isNode(schema[keyword]) ? Object.values(schema[keyword]) : [])),
    ...LISTS.flatMap((keyword) => (Array.isArray(schema[keyword]) ? schema[keyword] : [])),
    ...("items" in schema ? [schema.items] : []),
  ];
  return below.every(canBeStrict);
}

const isObjectSchema = (schema: Node) => [schema.type].flat().includes("object") || "properties" in schema;

function isClosed(schema: Node): boolean {
  const keys = isNode(schema.properties) ? Object.keys(schema.properties) : [];
  const required = new Set(Array.isArray(schema.required) ? schema.required : []);
  return schema.additionalProperties === false && keys.every((key) => required.has(key));
}

/** The request body with `strict` taken back where the schema cannot bear it. */
export function relaxSchema(body: Record<string, unknown>): Record<string, unknown> {
  const format = body.response_format;
  if (!isNode(format) || !isNode(format.json_schema) || format.json_schema.strict !== true) return body;
  if (canBeStrict(format.json_schema.schema)) return body;
  return { ...body, response_format: { ...format, json_schema: { ...format.json_schema, strict: false } } };
}
