/**
 * JSON Schemas that come with a request: bounded in size, depth and time, compiled once and kept while they are in use.
 */
import { Ajv, type ValidateFunction } from "ajv";
import { Ajv2020 } from "ajv/dist/2020.js";
import formats from "ajv-formats";
import { invalid, messageOf, ServiceError } from "../errors.ts";
import { describeProblems } from "../json-schema.ts";
import { createTimeGuard, type TimeGuard } from "./time-guard.ts";

/** Bytes of a schema as JSON, its levels, and milliseconds to compile it or to check one value: a busy machine is slow. */
const LIMITS = { bytes: 64 * 1024, depth: 32, milliseconds: 1_000 };
/** Nodes of a schema times nodes of a value: beyond, a check is timed, and ends with the first problem. */
const MOST_PAIRS = 500_000;
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
 *
 * @param root what messages call the value
 */
export function createClientSchemas(root = "result"): (schema: object, path: string) => ClientSchema {
  const guard = createTimeGuard();
  const kept = new Map<string, ClientSchema>();
  return (schema, path) => {
    const { text, nodes } = checkBounds(schema, path);
    const known = kept.get(text);
    if (known !== undefined) {
      kept.delete(text);
      kept.set(text, known);
      return known;
    }
    const compiled = compile(schema as Record<string, unknown>, { text, nodes, root }, path, guard);
    kept.set(text, compiled);
    if (kept.size > KEPT) kept.delete(kept.keys().next().value!);
    return compiled;
  };
}

interface Measured {
  text: string;
  /** Values in it. */
  nodes: number;
}

interface Named extends Measured {
  /** What messages call the value. */
  root: string;
}

function checkBounds(schema: object, path: string): Measured {
  if (Array.isArray(schema) || !("type" in schema)) throw invalid(`${path} must be a JSON Schema with a type`);
  const nodes = checkNode(schema, path, 1);
  const text = JSON.stringify(schema);
  if (Buffer.byteLength(text) > LIMITS.bytes) throw invalid(`${path} must be at most 64 KiB`);
  return { text, nodes };
}

/** Gives the number of values in it. */
function checkNode(node: unknown, path: string, depth: number): number {
  if (typeof node !== "object" || node === null) return 1;
  if (depth > LIMITS.depth) throw invalid(`${path} must be at most ${LIMITS.depth} levels deep`);
  const { $ref, $dynamicRef, $id } = node as Record<string, unknown>;
  for (const reference of [$ref, $dynamicRef]) {
    if (typeof reference === "string" && !reference.startsWith("#")) {
      throw invalid(`${path} must not refer to another document ($ref "${reference.slice(0, 100)}")`);
    }
  }
  if (depth > 1 && typeof $id === "string") throw invalid(`${path} must not have an $id below its top`);
  let nodes = 1;
  for (const child of Object.values(node)) nodes += checkNode(child, path, depth + 1);
  return nodes;
}

/** Keywords whose cost does not grow with the value alone. */
const COSTLY = /"(?:pattern|patternProperties|format|uniqueItems|\$ref|\$dynamicRef)":/;

function compile(
  schema: Record<string, unknown>,
  { text, nodes, root }: Named,
  path: string,
  guard: TimeGuard,
): ClientSchema {
  const { $schema, $id: _, ...body } = schema;
  const costly = COSTLY.test(text);
  const build = (allErrors: boolean): ValidateFunction => {
    try {
      // A compiler for each schema: what it remembers goes with it, and one that was stopped half-way is not used again.
      return guard(() => compilerFor($schema, allErrors).compile(body), LIMITS.milliseconds);
    } catch (error) {
      throw invalid(`${path} does not compile: ${messageOf(error).slice(0, 500)}`);
    }
  };
  const validate = build(!costly);
  // To gather every problem of a large value would fill the memory.
  let brief = costly ? validate : null;
  return {
    schema,
    problems(value) {
      try {
        if (!costly && countNodes(value, MOST_PAIRS / nodes) <= MOST_PAIRS / nodes)
          return complaint(validate, value, root);
        brief ??= build(false);
        const check = brief;
        return guard(() => complaint(check, value, root), LIMITS.milliseconds);
      } catch (error) {
        if (error instanceof ServiceError) throw error;
        // Too slow, too deep, or a keyword whose value no schema may have: it is the client's.
        throw invalid(`${path} cannot be checked: ${messageOf(error)}`);
      }
    },
  };
}

function complaint(validate: ValidateFunction, value: unknown, root: string): string | null {
  return validate(value) ? null : describeProblems(validate.errors, root) || `${root} is not valid`;
}

/** Values in a value, counted as far as `most`. */
function countNodes(value: unknown, most: number): number {
  if (typeof value !== "object" || value === null) return 1;
  let nodes = 1;
  for (const key in value) {
    if (nodes > most) break;
    nodes += countNodes((value as Record<string, unknown>)[key], most - nodes);
  }
  return nodes;
}

const OLD_DRAFTS = /draft-0[4-7]/;

function compilerFor(dialect: unknown, allErrors: boolean): Ajv {
  // Optimised code takes twice as long to make, and most of these schemas check one value.
  const code = { optimize: false };
  const options = { allErrors, code, strict: false, validateSchema: false, logger: false } as const;
  const ajv = typeof dialect === "string" && OLD_DRAFTS.test(dialect) ? new Ajv(options) : new Ajv2020(options);
  formats.default(ajv);
  return ajv;
}
