/**
 * JSON Schemas that come with a request: bounded in size, depth and time, compiled once and kept while they are in use.
 */
import { Ajv, type ErrorObject, type ValidateFunction } from "ajv";
import { Ajv2020 } from "ajv/dist/2020.js";
import formats from "ajv-formats";
import { invalid, messageOf } from "../errors.ts";
import { describeProblems } from "../json-schema.ts";
import { createTimeGuard, type TimeGuard, TooSlowError } from "./time-guard.ts";

/** Bytes of a schema as JSON, its levels, and milliseconds to compile it or to check one value. */
const LIMITS = { bytes: 64 * 1024, depth: 32, milliseconds: 250 };
const KEPT = 200;

export interface ClientSchema {
  /** The schema as the client sent it, for the model. */
  readonly schema: object;
  /** Every problem of a value joined by `; `, or null when it fits. */
  problems(value: unknown): string | null;
}

/**
 * Compiles schemas of requests; the last few hundred are kept by their text.
 *
 * The function it gives throws ServiceError `invalid_input` for a schema without a `type`, one that does not compile, is
 * too deep or too large, or refers to another document. `path` names it in the request (`schema`).
 */
export function createClientSchemas(): (schema: object, path: string) => ClientSchema {
  const guard = createTimeGuard();
  const kept = new Map<string, ClientSchema>();
  return (schema, path) => {
    const text = checkBounds(schema, path);
    const known = kept.get(text);
    if (known !== undefined) {
      kept.delete(text);
      kept.set(text, known);
      return known;
    }
    const compiled = compile(schema as Record<string, unknown>, text, path, guard);
    kept.set(text, compiled);
    if (kept.size > KEPT) kept.delete(kept.keys().next().value!);
    return compiled;
  };
}

/** Gives the schema's text. */
function checkBounds(schema: object, path: string): string {
  if (Array.isArray(schema) || !("type" in schema)) throw invalid(`${path} must be a JSON Schema with a type`);
  checkNode(schema, path, 1);
  const text = JSON.stringify(schema);
  if (Buffer.byteLength(text) > LIMITS.bytes) throw invalid(`${path} must be at most 64 KiB`);
  return text;
}

function checkNode(node: unknown, path: string, depth: number): void {
  if (typeof node !== "object" || node === null) return;
  if (depth > LIMITS.depth) throw invalid(`${path} must be at most ${LIMITS.depth} levels deep`);
  const { $ref, $dynamicRef, $id } = node as Record<string, unknown>;
  for (const reference of [$ref, $dynamicRef]) {
    if (typeof reference === "string" && !reference.startsWith("#")) {
      throw invalid(`${path} must not refer to another document ($ref "${reference.slice(0, 100)}")`);
    }
  }
  if (depth > 1 && typeof $id === "string") throw invalid(`${path} must not have an $id below its top`);
  for (const child of Object.values(node)) checkNode(child, path, depth + 1);
}

/** Keywords whose cost does not grow with the value alone. */
const COSTLY = /"(?:pattern|patternProperties|format|uniqueItems|\$ref|\$dynamicRef)":/;

function compile(schema: Record<string, unknown>, text: string, path: string, guard: TimeGuard): ClientSchema {
  const { $schema, $id: _, ...body } = schema;
  let validate: ValidateFunction;
  try {
    // A compiler for each schema: what it remembers goes with it, and one that was stopped half-way is not used again.
    validate = guard(() => compilerFor($schema).compile(body), LIMITS.milliseconds);
  } catch (error) {
    throw invalid(`${path} does not compile: ${messageOf(error).slice(0, 500)}`);
  }
  const check = (value: unknown): readonly ErrorObject[] | null => (validate(value) ? null : (validate.errors ?? []));
  const costly = COSTLY.test(text);
  return {
    schema,
    problems(value) {
      try {
        const errors = costly ? guard(() => check(value), LIMITS.milliseconds) : check(value);
        return errors === null ? null : describeProblems(errors, "result") || "result is not valid";
      } catch (error) {
        if (error instanceof TooSlowError) throw invalid(`${path} cannot be checked: ${error.message}`);
        throw error;
      }
    },
  };
}

const OLD_DRAFTS = /draft-0[4-7]/;

function compilerFor(dialect: unknown): Ajv {
  const options = {
    allErrors: true,
    strict: false,
    validateSchema: false,
    addUsedSchema: false,
    logger: false,
  } as const;
  const ajv = typeof dialect === "string" && OLD_DRAFTS.test(dialect) ? new Ajv(options) : new Ajv2020(options);
  formats.default(ajv);
  return ajv;
}
