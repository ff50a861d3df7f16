/**
 * JSON Schemas from clients or other servers: bounded in size and depth, interpreted and never compiled to code, and cached while
 * they are in use.
 */

import type { ErrorObject } from "ajv/dist/2020.js";
import type { Logger } from "pino";
import { invalid, messageOf, ServiceError } from "../lib/errors.ts";
import { describeProblems } from "../lib/json-schema.ts";
import { APPLICATORS, UNEVALUATED } from "./applicators.ts";
import { ASSERTIONS } from "./assertions.ts";
import { Interpreter, type Keywords } from "./interpreter.ts";
import { type PreparedSchema, prepareSchema } from "./prepare.ts";
import type { SchemaRateLimit } from "./rate.ts";
import { TooMuchWork, WorkBudget } from "./work.ts";

/** Limits of one schema: its size as JSON, and its depth. */
const LIMITS = { bytes: 64 * 1024, depth: 32 };
/** The work budget of one check, in steps of some 50 to 100 ns: it grows with the value, between two bounds. */
const STEPS = { minimum: 100_000, perCharacter: 20, maximum: 1_000_000 };
const MAX_CACHE_BYTES = 16 * 1024 * 1024;
/** Approximate memory per byte of a schema's text: for the text itself, and for the parsed values. */
const BYTES_PER_TEXT_BYTE = 6;

export interface ClientSchema {
  /** The schema as the client sent it, for the model. */
  readonly schema: object;
  /**
   * The first problems of a value joined by `; `, or null when it is valid.
   *
   * @throws ServiceError `invalid_input` when the check takes too much work
   */
  problems(value: unknown): string | null;
}

/** @param caller whose rate limit a schema that is not cached counts against; undefined for none */
export type PrepareSchema = (schema: object, path: string, caller?: string) => ClientSchema;

/**
 * The schema of a tool that somebody else runs. To the model it is advice, and whoever runs the tool checks the input himself: one that
 * cannot be used reaches the model as it came, and nothing is checked against it here.
 */
export function foreignSchema(
  prepare: PrepareSchema,
  logger: Logger,
  tool: string,
  ...schema: Parameters<PrepareSchema>
) {
  try {
    return prepare(...schema);
  } catch (error) {
    if (!(error instanceof ServiceError) || error.kind !== "invalid_input") throw error;
    logger.debug({ tool }, `the input of a tool is not checked here: ${error.message}`);
    return { schema: schema[0], problems: () => null };
  }
}

/**
 * Creates a function that prepares schemas, with a cache of the most recently used ones.
 *
 * The function throws ServiceError: `invalid_input` for a schema that has no `type`, is invalid, too deep or too large, or
 * refers to another document; `rate_limited` when its caller has sent too many new schemas. Its `path` is the name of the schema
 * in the request (`schema`).
 *
 * @param root the name of the value in messages
 */
export function createClientSchemas(root = "result", rate: SchemaRateLimit | null = null): PrepareSchema {
  const cache = new Map<string, { schema: ClientSchema; weight: number }>();
  let weight = 0;
  return (schema, path, caller) => {
    const text = JSON.stringify(schema);
    const cached = cache.get(text);
    if (cached !== undefined) {
      cache.delete(text);
      cache.set(text, cached);
      return cached.schema;
    }
    checkBounds(schema, text, path);
    if (caller !== undefined) rate?.spend(caller, text.length);
    const prepared = prepareOrThrow(schema as Record<string, unknown>, path);
    const entry = {
      schema: clientSchema(schema, prepared, path, root),
      weight: text.length * BYTES_PER_TEXT_BYTE + prepared.size,
    };
    cache.set(text, entry);
    weight += entry.weight;
    for (const [oldest, { weight: freed }] of cache) {
      if (weight <= MAX_CACHE_BYTES) break;
      cache.delete(oldest);
      weight -= freed;
    }
    return entry.schema;
  };
}

function checkBounds(schema: object, text: string, path: string): void {
  if (Array.isArray(schema) || !("type" in schema)) throw invalid(`${path} must be a JSON Schema with a type`);
  if (Buffer.byteLength(text) > LIMITS.bytes) throw invalid(`${path} must be at most 64 KiB`);
  checkNode(schema, path, 1);
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

function prepareOrThrow(schema: Record<string, unknown>, path: string): PreparedSchema {
  try {
    return prepareSchema(schema);
  } catch (error) {
    throw invalid(`${path} does not compile: ${messageOf(error).slice(0, 500)}`);
  }
}

function clientSchema(schema: object, prepared: PreparedSchema, path: string, root: string): ClientSchema {
  return {
    schema,
    problems(value) {
      try {
        const { fits, errors } = checkValue(prepared, value);
        return fits ? null : describeProblems(errors, root) || `${root} is not valid`;
      } catch (error) {
        if (!(error instanceof TooMuchWork)) throw error;
        throw invalid(`${path} cannot be checked: ${error.message}`);
      }
    },
  };
}

const KEYWORDS: Keywords = { assertions: ASSERTIONS, applicators: APPLICATORS, unevaluated: UNEVALUATED };

/** Whether a value is valid, and its first problems. @throws TooMuchWork */
function checkValue(schema: PreparedSchema, value: unknown): { fits: boolean; errors: ErrorObject[] } {
  const steps = STEPS.minimum + STEPS.perCharacter * jsonLength(value);
  const interpreter = new Interpreter(KEYWORDS, schema, new WorkBudget(Math.min(steps, STEPS.maximum)));
  const fits = interpreter.check(schema.root, value);
  return { fits, errors: interpreter.errors };
}

/** The approximate length of a value as JSON. */
function jsonLength(value: unknown): number {
  if (typeof value === "string") return value.length + 2;
  if (typeof value !== "object" || value === null) return 4;
  let count = 2;
  for (const key in value) count += 4 + jsonLength((value as Record<string, unknown>)[key]);
  return count;
}
