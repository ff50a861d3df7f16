/**
 * JSON Schemas from clients or other servers: bounded in size and depth, interpreted and never compiled to code, and cached while
 * they are in use.
 */
import type { ErrorObject } from "ajv/dist/2020.js";
import type { Logger } from "pino";
import { invalid, messageOf, ServiceError } from "../lib/errors.ts";
import { isObject } from "../lib/is-object.ts";
import { describeProblems } from "../lib/json-schema.ts";
import { ASSERTIONS, dependencies, isNamed } from "./assertions.ts";
import { type Applicator, type Evaluated, Interpreter, type Keywords } from "./interpreter.ts";
import { type PreparedSchema, prepareSchema, type Schema } from "./prepare.ts";
import type { SchemaRateLimit } from "./rate.ts";
import { TooMuchWork, WorkBudget } from "./work.ts";

/* The JSON Schema keywords that apply subschemas to the value or to its parts. */

type Schemas = Readonly<Record<string, Schema>>;

const all: Applicator = (interpreter, argument: readonly Schema[], value, _schema, evaluated) => {
  let holds = true;
  for (const schema of argument) {
    if (interpreter.check(schema, value, evaluated)) continue;
    holds = false;
    if (interpreter.canStop) return false;
  }
  return holds;
};

const any: Applicator = (interpreter, argument: readonly Schema[], value, _schema, evaluated) => {
  const before = interpreter.errors.length;
  let holds = false;
  for (const schema of argument) {
    holds = interpreter.check(schema, value, evaluated) || holds;
    // For unevaluatedProperties and unevaluatedItems all matching schemas count, so no early exit.
    if (holds && evaluated === null) break;
  }
  if (!holds) return interpreter.fail("anyOf", "must match a schema in anyOf");
  interpreter.dropErrorsAfter(before);
  return true;
};

const one: Applicator = (interpreter, argument: readonly Schema[], value, _schema, evaluated) => {
  const before = interpreter.errors.length;
  const count = argument.filter((schema) => interpreter.check(schema, value, evaluated)).length;
  if (count > 0) interpreter.dropErrorsAfter(before);
  return count === 1 || interpreter.fail("oneOf", "must match exactly one schema in oneOf");
};

const condition: Applicator = (interpreter, argument: Schema, value, { then, else: otherwise }, evaluated) => {
  const chosen = interpreter.checkSilently(argument, value, evaluated) ? then : otherwise;
  return chosen === undefined || interpreter.check(chosen as Schema, value, evaluated);
};

const dependent: Applicator = (interpreter, argument: Schemas, value, schema, evaluated) => {
  if (!isObject(value)) return true;
  let holds = dependencies(interpreter, argument, value, schema);
  for (const property in argument) {
    const needed = argument[property]!;
    interpreter.work.spend(1);
    if (Array.isArray(needed) || !Object.hasOwn(value, property)) continue;
    if (!interpreter.check(needed, value, evaluated)) holds = false;
    if (!holds && interpreter.canStop) return false;
  }
  return holds;
};

/** Checks the properties of a value. `check` returns null for properties to which the keyword does not apply. */
function checkProperties(
  interpreter: Interpreter,
  value: unknown,
  check: (key: string, part: unknown) => boolean | null,
  evaluated: Evaluated | null,
): boolean {
  if (!isObject(value)) return true;
  let holds = true;
  for (const key in value) {
    interpreter.work.spend(1);
    const found = check(key, value[key]);
    if (found === null) continue;
    evaluated?.properties.add(key);
    if (found) continue;
    holds = false;
    if (interpreter.canStop) return false;
  }
  return holds;
}

const checkItemsFrom = (
  interpreter: Interpreter,
  argument: Schema,
  value: unknown,
  from: number,
  evaluated: Evaluated | null,
): boolean => {
  if (!Array.isArray(value)) return true;
  if (argument === false && value.length > from)
    return interpreter.fail("items", `must NOT have more than ${from} items`);
  let holds = true;
  for (let index = from; index < value.length; index++) {
    if (interpreter.checkPart(argument, value[index], index)) continue;
    holds = false;
    if (interpreter.canStop) return false;
  }
  if (holds && evaluated !== null) evaluated.itemsBefore = Math.max(evaluated.itemsBefore, value.length);
  return holds;
};

const prefixItems: Applicator = (interpreter, argument: readonly Schema[], value, _schema, evaluated) => {
  if (!Array.isArray(value)) return true;
  let holds = true;
  const count = Math.min(argument.length, value.length);
  for (let index = 0; index < count; index++) {
    if (interpreter.checkPart(argument[index]!, value[index], index)) continue;
    holds = false;
    if (interpreter.canStop) return false;
  }
  if (evaluated !== null) evaluated.itemsBefore = Math.max(evaluated.itemsBefore, count);
  return holds;
};

const contains: Applicator = (interpreter, argument: Schema, value, { minContains = 1, maxContains }, evaluated) => {
  if (!Array.isArray(value)) return true;
  let count = 0;
  for (const [index, item] of value.entries()) {
    if (!interpreter.checkSilently(argument, item)) continue;
    count++;
    evaluated?.items.add(index);
    if (evaluated === null && maxContains === undefined && count >= (minContains as number)) return true;
  }
  if (count >= (minContains as number) && count <= ((maxContains as number | undefined) ?? count)) return true;
  const most = maxContains === undefined ? "" : ` and no more than ${maxContains}`;
  return interpreter.fail("contains", `must contain at least ${minContains}${most} valid item(s)`);
};

const reference: Applicator = (interpreter, argument: string, value, _schema, evaluated) =>
  interpreter.check(interpreter.schema.references.get(argument)!, value, evaluated);

const APPLICATORS: ReadonlyMap<string, Applicator> = new Map<string, Applicator>([
  ["$ref", reference],
  ["$dynamicRef", reference],
  ["allOf", all],
  ["anyOf", any],
  ["oneOf", one],
  [
    "not",
    (interpreter, argument: Schema, value) =>
      !interpreter.checkSilently(argument, value) || interpreter.fail("not", "must NOT be valid"),
  ],
  ["if", condition],
  ["dependentSchemas", dependent],
  ["dependencies", dependent],
  [
    "properties",
    (interpreter, argument: Schemas, value, _schema, evaluated) => {
      const check = (key: string, part: unknown) =>
        Object.hasOwn(argument, key) ? interpreter.checkPart(argument[key]!, part, key) : null;
      return checkProperties(interpreter, value, check, evaluated);
    },
  ],
  [
    "patternProperties",
    (interpreter, argument: Schemas, value, _schema, evaluated) => {
      const patterns = Object.keys(argument);
      const check = (key: string, part: unknown) => {
        const matching = patterns.filter((pattern) => interpreter.matches(pattern, key));
        return matching.length === 0
          ? null
          : matching.every((pattern) => interpreter.checkPart(argument[pattern]!, part, key));
      };
      return checkProperties(interpreter, value, check, evaluated);
    },
  ],
  [
    "additionalProperties",
    (interpreter, argument: Schema, value, schema, evaluated) => {
      const check = (key: string, part: unknown) => {
        return isNamed(interpreter, key, schema) ? null : interpreter.checkPart(argument, part, key);
      };
      // `false` has been checked as an assertion already.
      return argument === false || checkProperties(interpreter, value, check, evaluated);
    },
  ],
  [
    "propertyNames",
    (interpreter, argument: Schema, value) => {
      const check = (key: string) =>
        interpreter.check(argument, key) || interpreter.fail("propertyNames", "property name must be valid");
      return checkProperties(interpreter, value, check, null);
    },
  ],
  ["prefixItems", prefixItems],
  [
    "items",
    (interpreter, argument: Schema | readonly Schema[], value, schema, evaluated) =>
      Array.isArray(argument)
        ? prefixItems(interpreter, argument as never, value, schema, evaluated)
        : checkItemsFrom(
            interpreter,
            argument as Schema,
            value,
            Array.isArray(schema.prefixItems) ? schema.prefixItems.length : 0,
            evaluated,
          ),
  ],
  [
    "additionalItems",
    (interpreter, argument: Schema, value, { items }, evaluated) =>
      !Array.isArray(items) || checkItemsFrom(interpreter, argument, value, items.length, evaluated),
  ],
  ["contains", contains],
]);

/** Keywords that depend on what the others have evaluated. */
const UNEVALUATED: ReadonlyMap<string, Applicator> = new Map<string, Applicator>([
  [
    "unevaluatedProperties",
    (interpreter, argument: Schema, value, _schema, evaluated) => {
      const known = evaluated as Evaluated;
      if (known.allProperties) return true;
      const check = (key: string, part: unknown) => {
        if (known.properties.has(key)) return null;
        if (argument !== false) return interpreter.checkPart(argument, part, key);
        return interpreter.fail("unevaluatedProperties", "must NOT have unevaluated properties", {
          unevaluatedProperty: key,
        });
      };
      return checkProperties(interpreter, value, check, evaluated);
    },
  ],
  [
    "unevaluatedItems",
    (interpreter, argument: Schema, value, _schema, evaluated) => {
      if (!Array.isArray(value)) return true;
      const known = evaluated as Evaluated;
      let holds = true;
      for (let index = known.itemsBefore; index < value.length; index++) {
        if (known.items.has(index)) continue;
        const fits = argument === false ? false : interpreter.checkPart(argument, value[index], index);
        if (!fits && argument === false) interpreter.fail("unevaluatedItems", `must NOT have more than ${index} items`);
        if (fits) continue;
        holds = false;
        if (interpreter.canStop) return false;
      }
      if (holds) known.itemsBefore = value.length;
      return holds;
    },
  ],
]);

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
