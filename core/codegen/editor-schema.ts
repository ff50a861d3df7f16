/** `generated/service.schema.json`: the schema for editors, of the manifest as written, before every `${...}` is filled in. */
import { isObject } from "../lib/is-object.ts";
import type { JsonSchema } from "../lib/json-schema.ts";
import { mapSubschemas } from "./schema-walk.ts";

const REFERENCE = {
  // biome-ignore lint/suspicious/noTemplateCurlyInString: it is what users write
  description: "`${NAME}`, `${NAME:-default}` or `${file:PATH}`, which is filled in at the start.",
  type: "string",
  pattern: "\\$\\{[^}]",
};
const SCALARS = ["number", "integer", "boolean"];
/** Keywords that a text with a reference may violate until it is filled in. */
const NARROWING = ["enum", "const", "pattern", "format", "maxLength"];
/** Keywords about the place and not the value: they stay outside, where editors look for them. */
const ANNOTATIONS = ["title", "description", "default", "examples"];
/** Keywords that never apply to a reference: conditions and names of keys. */
const UNCHANGED = ["if", "not", "propertyNames"];

/** @param definitions of the manifest by name, which refer to each other as `#/$defs/NAME` */
export function editorSchema(definitions: Record<string, JsonSchema>): JsonSchema {
  const changed = Object.entries(definitions).map(([name, schema]) => [name, withReferences(schema)]);
  return {
    $schema: "https://json-schema.org/draft/2020-12/schema",
    title: "service.yaml",
    description: "The manifest of a Penstock service.",
    $ref: "#/$defs/Manifest",
    $defs: Object.fromEntries(changed),
  };
}

/** The schema for editors of files of evals, which cannot contain references. */
export const evalsSchema = (definitions: Record<string, JsonSchema>): JsonSchema => ({
  $schema: "https://json-schema.org/draft/2020-12/schema",
  title: "evals.yaml",
  description: "Cases for `penstock eval`.",
  $ref: "#/$defs/EvalFile",
  $defs: definitions,
});

/** A copy that accepts `${...}` wherever a single text may stand for the value. */
function withReferences(schema: JsonSchema): JsonSchema {
  const copy = mapSubschemas(schema, withReferences);
  for (const keyword of UNCHANGED) if (keyword in schema) copy[keyword] = schema[keyword];
  if (!takesText(schema)) return copy;
  const entries = Object.entries(copy);
  const outside = entries.filter(([key]) => ANNOTATIONS.includes(key));
  const inside = entries.filter(([key]) => !ANNOTATIONS.includes(key));
  return { ...Object.fromEntries(outside), anyOf: [Object.fromEntries(inside), REFERENCE] };
}

/** Whether a reference must be allowed because the schema itself would refuse its text. */
function takesText(schema: JsonSchema): boolean {
  const types = [schema.type ?? []].flat();
  if (!types.includes("string")) return types.some((type) => SCALARS.includes(String(type))) || isScalarChoice(schema);
  return NARROWING.some((keyword) => keyword in schema);
}

const isScalarChoice = ({ enum: values, const: value }: JsonSchema): boolean =>
  (Array.isArray(values) && !values.some(isObject)) || (value !== undefined && !isObject(value));
