/** The JSON Schema keywords that apply subschemas to the value or to its parts. */
import { isObject } from "../lib/is-object.ts";
import { dependencies, isNamed } from "./assertions.ts";
import type { Applicator, Evaluated, Interpreter } from "./interpreter.ts";
import type { Schema } from "./prepare.ts";

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

const arrayLength = (list: unknown): number => (Array.isArray(list) ? list.length : 0);

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

export const APPLICATORS: ReadonlyMap<string, Applicator> = new Map<string, Applicator>([
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
        : checkItemsFrom(interpreter, argument as Schema, value, arrayLength(schema.prefixItems), evaluated),
  ],
  [
    "additionalItems",
    (interpreter, argument: Schema, value, { items }, evaluated) =>
      !Array.isArray(items) || checkItemsFrom(interpreter, argument, value, items.length, evaluated),
  ],
  ["contains", contains],
]);

/** Keywords that depend on what the others have evaluated. */
export const UNEVALUATED: ReadonlyMap<string, Applicator> = new Map<string, Applicator>([
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
