/**
 * Checks that a JSON Schema is valid: that every keyword has a value of the right type. Ajv can check this too, but compiling its
 * meta schema takes 35 ms of every start, and its messages have no paths.
 */
import { isObject } from "./is-object.ts";

type Shape =
  | "schema"
  | "schemas"
  | "map"
  | "text"
  | "texts"
  | "number"
  | "positive"
  | "count"
  | "flag"
  | "type"
  | "list"
  | "pattern";

const KEYWORDS: ReadonlyMap<string, Shape> = new Map(
  Object.entries({
    schema:
      "additionalProperties contains contentSchema else if items not propertyNames then unevaluatedItems unevaluatedProperties",
    schemas: "allOf anyOf oneOf prefixItems",
    map: "$defs definitions dependentSchemas patternProperties properties",
    text: "$anchor $comment $dynamicAnchor $dynamicRef $id $ref $schema contentEncoding contentMediaType description format title",
    texts: "required",
    number: "exclusiveMaximum exclusiveMinimum maximum minimum",
    positive: "multipleOf",
    count: "maxContains maxItems maxLength maxProperties minContains minItems minLength minProperties",
    flag: "deprecated readOnly uniqueItems writeOnly",
    type: "type",
    list: "enum examples",
    pattern: "pattern",
  } satisfies Record<Shape, string>).flatMap(([shape, names]) =>
    names.split(" ").map((name) => [name, shape as Shape]),
  ),
);

const TYPES = ["array", "boolean", "integer", "null", "number", "object", "string"];

const isText = (value: unknown): value is string => typeof value === "string";

/** Checks of keywords with plain values: return the requirement, or null when the value is valid. Nested schemas are walked instead. */
const CHECKS: Readonly<Record<Exclude<Shape, "schema" | "schemas" | "map">, (value: unknown) => string | null>> = {
  text: (value) => (isText(value) ? null : "must be a string"),
  texts: (value) => (Array.isArray(value) && value.every(isText) ? null : "must be a list of strings"),
  number: (value) => (Number.isFinite(value) ? null : "must be a number"),
  positive: (value) => (Number.isFinite(value) && (value as number) > 0 ? null : "must be a number above 0"),
  count: (value) => (Number.isInteger(value) && (value as number) >= 0 ? null : "must be a whole number, 0 or more"),
  flag: (value) => (typeof value === "boolean" ? null : "must be true or false"),
  list: (value) => (Array.isArray(value) ? null : "must be a list"),
  type: (value) => {
    const types = Array.isArray(value) ? value : [value];
    const unknown = types.find((type) => !TYPES.includes(type));
    if (types.length > 0 && unknown === undefined) return null;
    return `must be ${TYPES.slice(0, -1).join(", ")} or ${TYPES.at(-1)}, not ${JSON.stringify(unknown ?? value)}`;
  },
  pattern: (value) => {
    if (!isText(value)) return "must be a string";
    try {
      new RegExp(value, "u");
      return null;
    } catch (error) {
      return `is not a regular expression: ${(error as Error).message}`;
    }
  },
};

/** Keywords that do not affect validation. */
const ANNOTATIONS = new Set(
  "$comment contentEncoding contentMediaType contentSchema deprecated description examples format readOnly title writeOnly".split(
    " ",
  ),
);

interface ShapeOptions {
  /** Whether `items` may be a list, as in old drafts. */
  readonly lists?: boolean;
  /** False if keywords that do not affect validation may have any value. */
  readonly annotations?: boolean;
}

/** Every problem of a schema with its path (`properties.city.type must be ...`); empty when the schema is valid. */
export function schemaProblems(schema: unknown, at = "", options: ShapeOptions = {}): string[] {
  if (typeof schema === "boolean") return [];
  if (!isObject(schema)) return [`${at || "the schema"} must be an object, true or false`];
  return Object.entries(schema).flatMap(([keyword, value]) => {
    if (options.annotations === false && ANNOTATIONS.has(keyword)) return [];
    const known = KEYWORDS.get(keyword);
    const shape = keyword === "items" && options.lists && Array.isArray(value) && value.length > 0 ? "schemas" : known;
    return shape === undefined ? [] : keywordProblems(shape, value, at === "" ? keyword : `${at}.${keyword}`, options);
  });
}

function keywordProblems(shape: Shape, value: unknown, at: string, options: ShapeOptions): string[] {
  switch (shape) {
    case "schema":
      return schemaProblems(value, at, options);
    case "schemas":
      if (!Array.isArray(value) || value.length === 0) return [`${at} must be a list of schemas, at least one`];
      return value.flatMap((item, index) => schemaProblems(item, `${at}[${index}]`, options));
    case "map":
      if (!isObject(value)) return [`${at} must be an object of schemas`];
      return Object.entries(value).flatMap(([key, item]) => schemaProblems(item, `${at}.${key}`, options));
    default: {
      const problem = CHECKS[shape](value);
      return problem === null ? [] : [`${at} ${problem}`];
    }
  }
}
