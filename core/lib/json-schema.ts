/** Compiles JSON Schemas that are known only at run time (of tools, workflows and plugins), and describes their errors. */
import { Ajv2020, type ErrorObject, type FuncKeywordDefinition, type ValidateFunction } from "ajv/dist/2020.js";
import formats from "ajv-formats";
import { boundErrors } from "./bounded-errors.ts";
import { schemaProblems } from "./schema-shape.ts";

// Checks `uniqueItems` in one pass: Ajv compares every pair of items, which takes hours for a list that fits into a request.

/** Replaces Ajv's own keyword. */
function useUniqueItems(ajv: Pick<Ajv2020, "removeKeyword" | "addKeyword">): void {
  ajv.removeKeyword("uniqueItems");
  ajv.addKeyword({ keyword: "uniqueItems", type: "array", schemaType: "boolean", before: "items", validate });
}

const validate: NonNullable<FuncKeywordDefinition["validate"]> = (wanted: boolean, items: unknown[]) => {
  if (!wanted) return true;
  const places = new Map<unknown, number>();
  for (const [i, item] of items.entries()) {
    const key = equalityKey(item);
    const j = places.get(key);
    if (j !== undefined) {
      const message = `must NOT have duplicate items (items ## ${j} and ${i} are identical)`;
      validate.errors = [{ keyword: "uniqueItems", params: { i, j }, message }];
      return false;
    }
    places.set(key, i);
  }
  return true;
};

/** The same key only for equal values. Numbers and booleans are their own key, which needs no text. */
function equalityKey(value: unknown): unknown {
  if (typeof value === "string") return `"${value}`;
  return typeof value === "object" && value !== null ? JSON.stringify(value, sorted) : value;
}

/** Sorts keys, because objects are equal whatever their order. */
function sorted(_key: string, value: unknown): unknown {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return value;
  return Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)));
}

/** Most problems in a description, and most that are looked for in one list or map. */
const MAX_PROBLEMS = 20;

/** A compiler for one service: its schemas and their memory are released with it. */
export interface SchemaCompiler {
  /** Throws an Error that describes what is wrong with the schema. */
  compile(schema: object): ValidateFunction;
}

/** @param options `defaults` fills in the schema's defaults: for configuration, never for what a client sends */
export function createSchemaCompiler(options: { defaults?: boolean } = {}): SchemaCompiler {
  const ajv = new Ajv2020({
    allErrors: true,
    strict: false,
    // `1e400` is JSON, and no number here: it would be stored as null.
    strictNumbers: true,
    useDefaults: options.defaults ?? false,
    logger: false,
    // `schemaProblems` does this, with paths, and without the 35 ms for compiling the meta schema.
    validateSchema: false,
  });
  formats.default(ajv);
  boundErrors(ajv, MAX_PROBLEMS);
  useUniqueItems(ajv);
  return {
    compile(schema) {
      const problems = schemaProblems(schema);
      if (problems.length > 0) throw new Error(problems.join("; "));
      try {
        return ajv.compile(schema);
      } finally {
        // Ajv would keep compiled schemas forever, and two of them may have the same `$id`.
        ajv.removeSchema(schema);
      }
    },
  };
}

/** Longest description, because clients may choose names of fields. */
const MAX_PROBLEM_CHARACTERS = 1_000;
const MAX_FIELD_CHARACTERS = 256;

/** Messages for some patterns. Clients resolve `.` and `..` in a path, so nothing with such an id could be addressed. */
const PATTERN_MESSAGES: Readonly<Record<string, string>> = {
  "^(?!\\.{1,2}$)": 'must not be "." or "..", which cannot stand in a path',
  "^(?!\\.{1,2}$)[A-Za-z0-9_.:-]{1,128}$":
    'must be 1 to 128 letters, digits, "_", ".", ":" or "-", and not "." or "..", which cannot stand in a path',
  "^(?!\\.{1,2}$)[A-Za-z0-9_.:-]{0,128}$":
    'must be at most 128 letters, digits, "_", ".", ":" or "-", and not "." or "..", which cannot stand in a path',
};

/** All problems joined by `; `: `input.amount must be number; input.name is required`. `root` names the whole value. */
export function describeProblems(errors: readonly ErrorObject[] | null | undefined, root = ""): string {
  const seen = new Set<string>();
  for (const error of errors ?? []) {
    const text = describeProblem(error, root);
    if (text !== null) seen.add(shortened(text, MAX_PROBLEM_CHARACTERS));
    if (seen.size >= MAX_PROBLEMS) break;
  }
  return [...seen].join("; ");
}

function describeProblem(error: ErrorObject, root: string): string | null {
  const at = fieldName(error.instancePath, root);
  const params = error.params as Record<string, unknown>;
  switch (error.keyword) {
    case "required":
      return `${join(at, String(params.missingProperty))} is required`;
    case "additionalProperties":
    case "unevaluatedProperties":
      return `${join(at, String(params.additionalProperty ?? params.unevaluatedProperty))} is not a known key`;
    case "dependentRequired":
      return `${join(at, String(params.missingProperty))} is required beside ${params.property}`;
    case "enum":
      return `${at || "body"} must be one of ${(params.allowedValues as unknown[]).map((value) => JSON.stringify(value)).join(", ")}`;
    case "const":
      return `${at || "body"} must be ${JSON.stringify(params.allowedValue)}`;
    case "if":
      return null;
    case "pattern":
      return `${at || "body"} ${PATTERN_MESSAGES[String(params.pattern)] ?? error.message}`;
    case "type":
      return `${at || "body"} must be ${[params.type].flat().join(" or ")}`;
    default:
      return `${at || "body"} ${error.message ?? "is not valid"}`;
  }
}

/** Converts a JSON pointer: `/options/stopSequences/0` -> `options.stopSequences[0]`. */
function fieldName(pointer: string, root: string): string {
  let field = root;
  for (const raw of pointer
    .slice(0, MAX_FIELD_CHARACTERS * 2)
    .split("/")
    .slice(1)) {
    const key = raw.replaceAll("~1", "/").replaceAll("~0", "~");
    field = /^\d+$/.test(key) ? `${field}[${key}]` : join(field, key);
  }
  return shortened(field, MAX_FIELD_CHARACTERS);
}

const join = (parent: string, key: string) => shortened(parent === "" ? key : `${parent}.${key}`, MAX_FIELD_CHARACTERS);

const shortened = (text: string, limit: number) => (text.length > limit ? `${text.slice(0, limit)}…` : text);

export type JsonSchema = Record<string, unknown>;
