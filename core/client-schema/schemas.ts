/**
 * JSON Schemas that come with a request, or from a foreign server: bounded in size and depth, read and never compiled, and kept
 * while they are in use.
 */
import { invalid, messageOf } from "../lib/errors.ts";
import { describeProblems } from "../lib/json-schema.ts";
import { problemsOf } from "./interpreter.ts";
import { type Prepared, prepareSchema } from "./prepare.ts";
import type { SchemaRate } from "./rate.ts";
import { TooMuchWork } from "./work.ts";

/** Bytes of a schema as JSON, and its levels. */
const LIMITS = { bytes: 64 * 1024, depth: 32 };
/** Bytes of the texts that are kept, and what a byte of text takes up in all, about, with the values that it is read into. */
const KEPT = 16 * 1024 * 1024;
const WEIGHT = 6;

export interface ClientSchema {
  /** The schema as the client sent it, for the model. */
  readonly schema: object;
  /**
   * The first problems of a value joined by `; `, or null when it fits.
   *
   * @throws ServiceError `invalid_input` when the check would cost more than any may
   */
  problems(value: unknown): string | null;
}

/** @param caller who pays for a schema that is not known yet; left out: nobody does */
export type PrepareSchema = (schema: object, path: string, caller?: string) => ClientSchema;

/**
 * Reads schemas of requests; those used last are kept by their text.
 *
 * The function it gives throws ServiceError `invalid_input` for a schema without a `type`, one that is none, is too deep or
 * too large, or refers to another document; `rate_limited` when its caller has sent too much that is new. `path` names it in the
 * request (`schema`).
 *
 * @param root what messages call the value
 */
export function createClientSchemas(root = "result", rate: SchemaRate | null = null): PrepareSchema {
  const kept = new Map<string, { schema: ClientSchema; weight: number }>();
  let weight = 0;
  return (schema, path, caller) => {
    const text = JSON.stringify(schema);
    const known = kept.get(text);
    if (known !== undefined) {
      kept.delete(text);
      kept.set(text, known);
      return known.schema;
    }
    checkBounds(schema, text, path);
    if (caller !== undefined) rate?.spend(caller, text.length);
    const prepared = prepareAs(schema as Record<string, unknown>, path);
    const made = { schema: clientSchema(schema, prepared, path, root), weight: text.length * WEIGHT + prepared.size };
    kept.set(text, made);
    weight += made.weight;
    for (const [oldest, { weight: freed }] of kept) {
      if (weight <= KEPT) break;
      kept.delete(oldest);
      weight -= freed;
    }
    return made.schema;
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

function prepareAs(schema: Record<string, unknown>, path: string): Prepared {
  try {
    return prepareSchema(schema);
  } catch (error) {
    throw invalid(`${path} does not compile: ${messageOf(error).slice(0, 500)}`);
  }
}

function clientSchema(schema: object, prepared: Prepared, path: string, root: string): ClientSchema {
  return {
    schema,
    problems(value) {
      try {
        const { fits, errors } = problemsOf(prepared, value);
        return fits ? null : describeProblems(errors, root) || `${root} is not valid`;
      } catch (error) {
        if (!(error instanceof TooMuchWork)) throw error;
        throw invalid(`${path} cannot be checked: ${error.message}`);
      }
    },
  };
}
