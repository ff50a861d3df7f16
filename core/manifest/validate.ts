/** Validates a manifest against its schema, and fills in every default. */
import type { ErrorObject } from "ajv";
import { validators } from "../../generated/validators.js";
import type { Path, Problem } from "../lib/problem.ts";
import type { Substitution } from "./environment.ts";
import { explainErrors, parsePointer } from "./schema-errors.ts";

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
