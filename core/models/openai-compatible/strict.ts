/**
 * OpenAI's strict mode accepts only schemas in which every property is required and no others are allowed: it is requested only
 * for such schemas.
 */
import { isObject } from "../../lib/is-object.ts";

type Node = Record<string, unknown>;

/** Keywords that strict mode rejects. */
const UNSUPPORTED_KEYWORDS = [
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
const SCHEMA_LISTS = ["anyOf", "prefixItems"];
const SCHEMA_MAPS = ["properties", "$defs", "definitions"];

const isNode = (value: unknown): value is Node => isObject(value);

/** Whether every object of the schema lists all its properties as required and allows no others. */
export function canBeStrict(schema: unknown): boolean {
  if (!isNode(schema)) return false;
  if (UNSUPPORTED_KEYWORDS.some((keyword) => keyword in schema)) return false;
  if (isObjectSchema(schema) && !isClosed(schema)) return false;
  const subschemas = [
    ...SCHEMA_MAPS.flatMap((keyword) => (isNode(schema[keyword]) ? Object.values(schema[keyword]) : [])),
    ...SCHEMA_LISTS.flatMap((keyword) => (Array.isArray(schema[keyword]) ? schema[keyword] : [])),
    ...("items" in schema ? [schema.items] : []),
  ];
  return subschemas.every(canBeStrict);
}

const isObjectSchema = (schema: Node) => [schema.type].flat().includes("object") || "properties" in schema;

function isClosed(schema: Node): boolean {
  const keys = isNode(schema.properties) ? Object.keys(schema.properties) : [];
  const required = new Set(Array.isArray(schema.required) ? schema.required : []);
  return schema.additionalProperties === false && keys.every((key) => required.has(key));
}
