/** From Ajv's errors to sentences that say what to do, one table row a keyword. */
import type { ErrorObject } from "ajv";
import type { Path, Problem } from "../lib/problem.ts";
import { hint, suggest } from "./issues.ts";

interface Subject {
  path: Path;
  error: ErrorObject;
  parent: Record<string, unknown>;
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

const bound =
  (words: string): Explain =>
  ({ path, error }) => ({ path, message: `must ${words} ${error.params.limit}` });

const EXPLANATIONS: Record<string, Explain> = {
  additionalProperties: ({ path, error, parent }) => {
    const name = error.params.additionalProperty as string;
    const known = Object.keys((parent.properties ?? {}) as object);
    return { path: [...path, name], message: `unknown key${hint(name, known)}` };
  },
  required: ({ path, error }) => ({ path: [...path, error.params.missingProperty], message: "is required" }),
  dependentRequired: ({ path, error }) => ({
    path: [...path, error.params.property],
    message: `makes sense only beside "${error.params.missingProperty}"`,
  }),
  type: ({ path, error, parent }) => ({ path, message: stated(parent.errorMessage) ?? wrongType(error) }),
  enum: ({ path, error }) => {
    const allowed = error.params.allowedValues as unknown[];
    const near = typeof error.data === "string" ? suggest(error.data, allowed.map(String)) : undefined;
    const tail = near === undefined ? "" : `, did you mean "${near}"?`;
    return { path, message: `must be one of ${allowed.join(", ")}${tail}` };
  },
  const: ({ path, error }) => ({ path, message: `must be ${JSON.stringify(error.params.allowedValue)}` }),
  pattern: ({ path, error, parent }) => ({
    path: error.propertyName === undefined ? path : [...path, error.propertyName],
    message: stated(parent.patternErrorMessage) ?? `must match ${error.params.pattern}`,
  }),
  oneOf: ({ path, parent }) => ({ path, message: stated(parent.errorMessage) ?? "must have exactly one of its forms" }),
  not: ({ path, parent }) => ({ path, message: stated(parent.errorMessage) ?? "is not allowed here" }),
  minimum: bound("be >="),
  maximum: bound("be <="),
  maxLength: bound("not be longer than"),
  minLength: ({ path }) => ({ path, message: "must not be empty" }),
  minItems: ({ path }) => ({ path, message: "must not be empty" }),
  maxItems: bound("not have more items than"),
  // Said by the errors inside them.
  if: () => null,
  propertyNames: () => null,
};

const stated = (value: unknown): string | undefined => (typeof value === "string" ? value : undefined);

function wrongType(error: ErrorObject): string {
  const types = [error.params.type as string | string[]].flat();
  const wanted = `must be ${types.map((type) => NOUNS[type] ?? type).join(" or ")}`;
  if (error.data === null) return `${wanted}, but is empty`;
  if (types[0] === "string" && typeof error.data !== "object") return `${wanted}: put it in quotes`;
  return wanted;
}

/** Problems for the errors of one validation of `root`, the noise of alternatives left out. */
export function explainErrors(errors: readonly ErrorObject[], root: unknown): Problem[] {
  const problems: Problem[] = [];
  const misspelt: Problem[] = [];
  for (const error of errors) {
    if (/\/(oneOf|anyOf|not)\//.test(error.schemaPath)) continue;
    const explain = EXPLANATIONS[error.keyword];
    const path = pathOf(error.instancePath, root);
    const parent = (error.parentSchema ?? {}) as Record<string, unknown>;
    const problem = explain ? explain({ path, error, parent }) : { path, message: error.message ?? "is not valid" };
    if (problem === null) continue;
    if (error.keyword === "additionalProperties") misspelt.push(problem);
    problems.push(problem);
  }
  return problems.filter((problem, index) => !isConsequence(problem, misspelt) && isFirst(problem, index, problems));
}

/** `modle` is what makes `model` missing, and `anThen` what makes a step empty: saying both would be noise. */
function isConsequence(problem: Problem, misspelt: readonly Problem[]): boolean {
  return misspelt.some((other) => {
    if (other === problem || !other.message.includes("did you mean")) return false;
    const holder = other.path.slice(0, -1);
    if (problem.message === "is required") {
      const missing = `did you mean "${String(problem.path.at(-1))}"?`;
      return other.message.includes(missing) && same(holder, problem.path.slice(0, -1));
    }
    return problem.message.includes("needs exactly one of") && same(holder, problem.path);
  });
}

/** Several branches may say the same of one place; the first to speak of a place is enough. */
function isFirst(problem: Problem, index: number, problems: readonly Problem[]): boolean {
  return problems.findIndex((other) => same(other.path, problem.path)) === index;
}

const same = (a: Path, b: Path): boolean => a.length === b.length && a.every((part, index) => part === b[index]);

/** A JSON pointer as a path; a segment is an index where `root` has a list. */
export function pathOf(pointer: string, root: unknown): (string | number)[] {
  const path: (string | number)[] = [];
  let node = root;
  for (const part of pointer.split("/").slice(1)) {
    const key = part.replaceAll("~1", "/").replaceAll("~0", "~");
    path.push(Array.isArray(node) ? Number(key) : key);
    node = (node as Record<string, unknown> | undefined)?.[key];
  }
  return path;
}
