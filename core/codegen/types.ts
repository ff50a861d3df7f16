/** `generated/types.ts`: one TypeScript type per definition. */

import { compile } from "json-schema-to-typescript";
import { isObject } from "../lib/is-object.ts";
import type { JsonSchema } from "../lib/json-schema.ts";
import { mapSubschemas, referencedName } from "./schema-walk.ts";
import { isWritten, type SchemaDefinition, type SchemaProblem } from "./sources.ts";

const OPTIONS = {
  bannerComment: "",
  additionalProperties: false,
  declareExternallyReferenced: false,
  format: true,
  style: { printWidth: 120 },
} as const;

/** Unsupported keywords: json-schema-to-typescript makes `never[]` of the first and ignores the others silently. */
const REFUSED = ["prefixItems", "unevaluatedProperties", "unevaluatedItems"];

/** The text of the types, without the head comment. Definitions that fail are named in `problems` and left out. */
export async function generateTypes(
  definitions: readonly SchemaDefinition[],
  problems: SchemaProblem[],
): Promise<string> {
  const blocks: string[] = [];
  const names: string[] = [];
  for (const definition of definitions) {
    try {
      const view = typeView(definition.schema, isWritten(definition));
      // Each definition is compiled separately: a reference becomes the name of the other one, so nothing is numbered or repeated.
      blocks.push((await compile({ ...view, title: definition.name }, definition.name, OPTIONS)).trim());
      names.push(definition.name);
    } catch (error) {
      problems.push({ file: definition.file, message: `$defs.${definition.name}: ${(error as Error).message}` });
    }
  }
  const rows = names.map((name) => `  ${name}: ${name};`).join("\n");
  const schemas = `/** Every type by the name of its schema. */\nexport interface Schemas {\n${rows}\n}`;
  return `${[...blocks, schemas].join("\n\n")}\n`;
}

/**
 * The schema for the type generator. The types of the manifest describe the resolved manifest: every key with a default is present, and
 * durations and sizes are numbers (`tsType` in their schemas).
 */
function typeView(schema: JsonSchema, resolved: boolean): JsonSchema {
  for (const keyword of REFUSED) {
    if (keyword in schema) throw new Error(`"${keyword}" is not carried over to the types: write it another way`);
  }
  const tsType = referencedName(schema.$ref) ?? schema.tsType;
  if (tsType !== undefined) return { tsType, ...("description" in schema && { description: schema.description }) };
  const view = mapSubschemas(schema, (subschema) => typeView(subschema, resolved));
  for (const keyword of ["title", "default", "examples", "if", "then", "else", "not"]) delete view[keyword];
  for (const keyword of ["allOf", "anyOf", "oneOf"]) if (!hasShape(view[keyword])) delete view[keyword];
  // `x-` keys are the user's own; with an index signature for them the compiler would accept every misspelt property.
  delete view.patternProperties;
  if (resolved) view.required = [...new Set([...asList(schema.required), ...defaulted(schema)])];
  if (asList(view.required).length === 0) delete view.required;
  // An object without properties would become `{}`, a type that accepts any value but null.
  if (schema.type === "object" && !("properties" in schema)) view.additionalProperties ??= true;
  return view;
}

const asList = (value: unknown): unknown[] => (Array.isArray(value) ? value : []);

/** Properties that are always present after validation: with a default, or with one in both branches of a condition. */
function defaulted(schema: JsonSchema): string[] {
  const { then: first, else: second } = schema as { then?: JsonSchema; else?: JsonSchema };
  const inElse = second ? defaulted(second) : [];
  const inBoth = first ? defaulted(first).filter((key) => inElse.includes(key)) : [];
  const entries = Object.entries((schema.properties ?? {}) as Record<string, JsonSchema>);
  return [
    ...entries.filter(([, property]) => isObject(property) && "default" in property).map(([key]) => key),
    ...inBoth,
  ];
}

/** False for combinations that only constrain (`oneOf: [{required: [a]}, {required: [b]}]`). */
function hasShape(combination: unknown): boolean {
  return asList(combination).some((part) =>
    Object.keys(part as JsonSchema).some((key) => !["required", "description", "minProperties"].includes(key)),
  );
}
