/** Turns Ajv's errors into messages that say what to do: a table with one row per keyword. */
import type { ErrorObject } from "ajv";
import { validators } from "../../generated/validators.js";
import type { Path, Problem } from "../lib/errors.ts";
import type { Substitution } from "./environment.ts";
import { hint, suggest } from "./manifest.ts";

interface Subject {
  path: Path;
  error: ErrorObject;
  schema: Record<string, unknown>;
}

type Explain = (subject: Subject) => Problem | null;

const NOUNS: Record<string, string> = {
  string: "text",
  number: "a number",
  integer: "a whole number",
  boolean: "true or false",
  object: "a map",
  array: "a list",
  null: "null",
};

const FORMATS: Record<string, string> = { date: "must be a date such as 2026-11-22" };

const limitMessage =
  (words: string): Explain =>
  ({ path, error }) => ({ path, message: `must ${words} ${error.params.limit}` });

const EXPLANATIONS: Record<string, Explain> = {
  additionalProperties: ({ path, error, schema }) => {
    const name = error.params.additionalProperty as string;
    const known = Object.keys((schema.properties ?? {}) as object);
    return { path: [...path, name], message: `unknown key${hint(name, known)}` };
  },
  required: ({ path, error }) => ({ path: [...path, error.params.missingProperty], message: "is required" }),
  dependentRequired: ({ path, error }) => ({
    path: [...path, error.params.property],
    message: `makes sense only beside "${error.params.missingProperty}"`,
  }),
  type: ({ path, error, schema }) => ({ path, message: customMessage(schema.errorMessage) ?? wrongType(error) }),
  enum: ({ path, error }) => {
    const allowed = error.params.allowedValues as unknown[];
    const near = typeof error.data === "string" ? suggest(error.data, allowed.map(String)) : undefined;
    const tail = near === undefined ? "" : `, did you mean "${near}"?`;
    return { path, message: `must be one of ${allowed.join(", ")}${tail}` };
  },
  const: ({ path, error }) => ({ path, message: `must be ${JSON.stringify(error.params.allowedValue)}` }),
  pattern: ({ path, error, schema }) => ({
    path: error.propertyName === undefined ? path : [...path, error.propertyName],
    message: customMessage(schema.patternErrorMessage) ?? `must match ${error.params.pattern}`,
  }),
  format: ({ path, error }) => ({
    path,
    message: FORMATS[error.params.format as string] ?? `must match format "${error.params.format}"`,
  }),
  oneOf: ({ path, schema }) => ({
    path,
    message: customMessage(schema.errorMessage) ?? "must have exactly one of its forms",
  }),
  not: ({ path, schema }) => ({ path, message: customMessage(schema.errorMessage) ?? "is not allowed here" }),
  minimum: limitMessage("be >="),
  maximum: limitMessage("be <="),
  maxLength: limitMessage("not be longer than"),
  minLength: ({ path }) => ({ path, message: "must not be empty" }),
  minItems: ({ path }) => ({ path, message: "must not be empty" }),
  maxItems: limitMessage("not have more items than"),
  // The errors inside these keywords are reported instead.
  if: () => null,
  propertyNames: () => null,
};

const customMessage = (value: unknown): string | undefined => (typeof value === "string" ? value : undefined);

function wrongType(error: ErrorObject): string {
  const types = [error.params.type as string | string[]].flat();
  const wanted = `must be ${types.map((type) => NOUNS[type] ?? type).join(" or ")}`;
  if (error.data === null) return `${wanted}, but is empty`;
  if (types[0] === "object" && Array.isArray(error.data)) return `${wanted}, not a list: "name:" in place of "- "`;
  if (types[0] === "array" && typeof error.data === "string") return `${wanted}: put it in [ ]`;
  if (types[0] === "string" && typeof error.data !== "object") return `${wanted}: put it in quotes`;
  return wanted;
}

/** The problems of one validation of `root`, without those of alternatives that were not meant. */
export function explainErrors(errors: readonly ErrorObject[], root: unknown): Problem[] {
  const problems: Problem[] = [];
  const misspelt: Problem[] = [];
  for (const error of errors) {
    if (/\/(oneOf|anyOf|not)\//.test(error.schemaPath)) continue;
    const explain = EXPLANATIONS[error.keyword];
    const path = parsePointer(error.instancePath, root);
    const schema = (error.parentSchema ?? {}) as Record<string, unknown>;
    const problem = explain ? explain({ path, error, schema }) : { path, message: error.message ?? "is not valid" };
    if (problem === null) continue;
    if (error.keyword === "additionalProperties") misspelt.push(problem);
    problems.push(problem);
  }
  // Several branches of a schema may report the same place: only the first report is kept.
  const own = problems.filter(
    (problem, index) =>
      !isConsequence(problem, misspelt) && problems.findIndex((other) => samePath(other.path, problem.path)) === index,
  );
  return own.flatMap((problem) => withStrangers(problem, own));
}

/** `{ type: agent }` instead of a kind of step is one mistake: the unknown key is named in the message about the missing kind. */
function withStrangers(problem: Problem, all: readonly Problem[]): Problem[] {
  const isNone = ({ message }: Problem) => message.includes("needs exactly one of");
  const isStranger = ({ message }: Problem) => message.startsWith("unknown key;");
  const inside = (one: Problem, other: Problem) => samePath(one.path.slice(0, -1), other.path);
  if (isStranger(problem)) return all.some((other) => isNone(other) && inside(problem, other)) ? [] : [problem];
  const strangers = isNone(problem) ? all.filter((other) => isStranger(other) && inside(other, problem)) : [];
  if (strangers.length === 0) return [problem];
  const names = strangers.map(({ path }) => path.at(-1)).join(", ");
  return [{ ...problem, message: `${problem.message}; unknown here: ${names}` }];
}

/** A misspelt `modle` also makes `model` missing, and `anThen` makes a step empty: only the misspelling is reported. */
function isConsequence(problem: Problem, misspelt: readonly Problem[]): boolean {
  return misspelt.some((other) => {
    if (other === problem || !other.message.includes("did you mean")) return false;
    const parentPath = other.path.slice(0, -1);
    if (problem.message === "is required") {
      const missing = `did you mean "${String(problem.path.at(-1))}"?`;
      return other.message.includes(missing) && samePath(parentPath, problem.path.slice(0, -1));
    }
    return problem.message.includes("needs exactly one of") && samePath(parentPath, problem.path);
  });
}

const samePath = (a: Path, b: Path): boolean => a.length === b.length && a.every((part, index) => part === b[index]);

/** Converts a JSON pointer to a path; a segment is an index if `root` has a list there. */
function parsePointer(pointer: string, root: unknown): (string | number)[] {
  const path: (string | number)[] = [];
  let node = root;
  for (const part of pointer.split("/").slice(1)) {
    const key = part.replaceAll("~1", "/").replaceAll("~0", "~");
    path.push(Array.isArray(node) ? Number(key) : key);
    node = (node as Record<string, unknown> | undefined)?.[key];
  }
  return path;
}

// Validates a manifest against its schema, and fills in every default.

/**
 * Returns the problems of `document` and changes it: missing keys get their defaults, and a value that was a single `${NAME}`
 * becomes a number or a boolean if the schema demands one.
 */
export function validate(document: unknown, substitutions: ReadonlyMap<string, Substitution>): Problem[] {
  const check = validators.Manifest;
  for (;;) {
    if (check(document)) return [];
    const errors = check.errors ?? [];
    const changed = errors.filter((error) => coerce(document, error, substitutions)).length;
    if (changed === 0) return explainErrors(errors, document);
  }
}

const NUMBER = /^-?\d+(\.\d+)?([eE][+-]?\d+)?$/;

/** Converts the text at the place of a type error to the required type; false when it cannot, or when no variable filled it in. */
function coerce(document: unknown, error: ErrorObject, substitutions: ReadonlyMap<string, Substitution>): boolean {
  if (error.keyword !== "type" || typeof error.data !== "string") return false;
  const path = parsePointer(error.instancePath, document);
  if (substitutions.get(JSON.stringify(path))?.whole !== true) return false;
  const types = [error.params.type as string | string[]].flat();
  const value = parseScalar(error.data.trim(), types);
  if (value === undefined) return false;
  setAt(document, path, value);
  return true;
}

function parseScalar(text: string, types: readonly string[]): number | boolean | undefined {
  if (types.includes("boolean") && (text === "true" || text === "false")) return text === "true";
  const numeric = types.includes("number") || types.includes("integer");
  return numeric && NUMBER.test(text) ? Number(text) : undefined;
}

function setAt(document: unknown, path: Path, value: unknown): void {
  let node = document as Record<string | number, unknown>;
  for (const part of path.slice(0, -1)) node = node[part] as Record<string | number, unknown>;
  node[path.at(-1) as string | number] = value;
}
