/** Keywords that apply schemas: to the value again, or to its parts. */
import { isObject } from "../lib/is-object.ts";
import { dependencies, isNamed } from "./assertions.ts";
import type { Evaluated, Interpreter } from "./interpreter.ts";
import type { Schema } from "./prepare.ts";

type Map_ = Readonly<Record<string, unknown>>;
type Applicator = (on: Interpreter, said: never, value: unknown, schema: Map_, evaluated: Evaluated | null) => boolean;

type Schemas = Readonly<Record<string, Schema>>;

const all: Applicator = (on, said: readonly Schema[], value, _schema, evaluated) => {
  let holds = true;
  for (const schema of said) {
    if (on.check(schema, value, evaluated)) continue;
    holds = false;
    if (on.stops) return false;
  }
  return holds;
};

const any: Applicator = (on, said: readonly Schema[], value, _schema, evaluated) => {
  const before = on.errors.length;
  let holds = false;
  for (const schema of said) {
    holds = on.check(schema, value, evaluated) || holds;
    // What the others speak of counts too.
    if (holds && evaluated === null) break;
  }
  if (!holds) return on.fail("anyOf", "must match a schema in anyOf");
  on.forget(before);
  return true;
};

const one: Applicator = (on, said: readonly Schema[], value, _schema, evaluated) => {
  const before = on.errors.length;
  const count = said.filter((schema) => on.check(schema, value, evaluated)).length;
  if (count > 0) on.forget(before);
  return count === 1 || on.fail("oneOf", "must match exactly one schema in oneOf");
};

const condition: Applicator = (on, said: Schema, value, { then, else: otherwise }, evaluated) => {
  const chosen = on.tries(said, value, evaluated) ? then : otherwise;
  return chosen === undefined || on.check(chosen as Schema, value, evaluated);
};

const dependent: Applicator = (on, said: Schemas, value, schema, evaluated) => {
  if (!isObject(value)) return true;
  let holds = dependencies(on, said, value, schema);
  for (const property in said) {
    const needed = said[property]!;
    on.work.spend(1);
    if (Array.isArray(needed) || !Object.hasOwn(value, property)) continue;
    if (!on.check(needed, value, evaluated)) holds = false;
    if (!holds && on.stops) return false;
  }
  return holds;
};

/** One pass over the properties of a value for all keywords that are about them. */
function overProperties(
  on: Interpreter,
  value: unknown,
  check: (key: string, part: unknown) => boolean | null,
  evaluated: Evaluated | null,
): boolean {
  if (!isObject(value)) return true;
  let holds = true;
  for (const key in value) {
    on.work.spend(1);
    const found = check(key, value[key]);
    if (found === null) continue;
    evaluated?.properties.add(key);
    if (found) continue;
    holds = false;
    if (on.stops) return false;
  }
  return holds;
}

const otherItems = (
  on: Interpreter,
  said: Schema,
  value: unknown,
  from: number,
  evaluated: Evaluated | null,
): boolean => {
  if (!Array.isArray(value)) return true;
  if (said === false && value.length > from) return on.fail("items", `must NOT have more than ${from} items`);
  let holds = true;
  for (let index = from; index < value.length; index++) {
    if (on.checkPart(said, value[index], index)) continue;
    holds = false;
    if (on.stops) return false;
  }
  if (holds && evaluated !== null) evaluated.itemsBefore = Math.max(evaluated.itemsBefore, value.length);
  return holds;
};

const firstItems: Applicator = (on, said: readonly Schema[], value, _schema, evaluated) => {
  if (!Array.isArray(value)) return true;
  let holds = true;
  const count = Math.min(said.length, value.length);
  for (let index = 0; index < count; index++) {
    if (on.checkPart(said[index]!, value[index], index)) continue;
    holds = false;
    if (on.stops) return false;
  }
  if (evaluated !== null) evaluated.itemsBefore = Math.max(evaluated.itemsBefore, count);
  return holds;
};

const lengthOf = (list: unknown): number => (Array.isArray(list) ? list.length : 0);

const contains: Applicator = (on, said: Schema, value, { minContains = 1, maxContains }, evaluated) => {
  if (!Array.isArray(value)) return true;
  let count = 0;
  for (const [index, item] of value.entries()) {
    if (!on.tries(said, item)) continue;
    count++;
    evaluated?.items.add(index);
    if (evaluated === null && maxContains === undefined && count >= (minContains as number)) return true;
  }
  if (count >= (minContains as number) && count <= ((maxContains as number | undefined) ?? count)) return true;
  const most = maxContains === undefined ? "" : ` and no more than ${maxContains}`;
  return on.fail("contains", `must contain at least ${minContains}${most} valid item(s)`);
};

const refer: Applicator = (on, said: string, value, _schema, evaluated) =>
  on.check(on.schema.references.get(said)!, value, evaluated);

export const APPLICATORS: ReadonlyMap<string, Applicator> = new Map<string, Applicator>([
  ["$ref", refer],
  ["$dynamicRef", refer],
  ["allOf", all],
  ["anyOf", any],
  ["oneOf", one],
  ["not", (on, said: Schema, value) => !on.tries(said, value) || on.fail("not", "must NOT be valid")],
  ["if", condition],
  ["dependentSchemas", dependent],
  ["dependencies", dependent],
  [
    "properties",
    (on, said: Schemas, value, _schema, evaluated) => {
      const check = (key: string, part: unknown) =>
        Object.hasOwn(said, key) ? on.checkPart(said[key]!, part, key) : null;
      return overProperties(on, value, check, evaluated);
    },
  ],
  [
    "patternProperties",
    (on, said: Schemas, value, _schema, evaluated) => {
      const patterns = Object.keys(said);
      const check = (key: string, part: unknown) => {
        const matching = patterns.filter((pattern) => on.matches(pattern, key));
        return matching.length === 0 ? null : matching.every((pattern) => on.checkPart(said[pattern]!, part, key));
      };
      return overProperties(on, value, check, evaluated);
    },
  ],
  [
    "additionalProperties",
    (on, said: Schema, value, schema, evaluated) => {
      const check = (key: string, part: unknown) => {
        return isNamed(on, key, schema) ? null : on.checkPart(said, part, key);
      };
      // False is said of the value itself, and was.
      return said === false || overProperties(on, value, check, evaluated);
    },
  ],
  [
    "propertyNames",
    (on, said: Schema, value) => {
      const check = (key: string) => on.check(said, key) || on.fail("propertyNames", "property name must be valid");
      return overProperties(on, value, check, null);
    },
  ],
  ["prefixItems", firstItems],
  [
    "items",
    (on, said: Schema | readonly Schema[], value, schema, evaluated) =>
      Array.isArray(said)
        ? firstItems(on, said as never, value, schema, evaluated)
        : otherItems(on, said as Schema, value, lengthOf(schema.prefixItems), evaluated),
  ],
  [
    "additionalItems",
    (on, said: Schema, value, { items }, evaluated) =>
      !Array.isArray(items) || otherItems(on, said, value, items.length, evaluated),
  ],
  ["contains", contains],
]);

/** Those that ask what the others have spoken of. */
export const LAST: ReadonlyMap<string, Applicator> = new Map<string, Applicator>([
  [
    "unevaluatedProperties",
    (on, said: Schema, value, _schema, evaluated) => {
      const known = evaluated as Evaluated;
      if (known.allProperties) return true;
      const check = (key: string, part: unknown) => {
        if (known.properties.has(key)) return null;
        if (said !== false) return on.checkPart(said, part, key);
        return on.fail("unevaluatedProperties", "must NOT have unevaluated properties", { unevaluatedProperty: key });
      };
      return overProperties(on, value, check, evaluated);
    },
  ],
  [
    "unevaluatedItems",
    (on, said: Schema, value, _schema, evaluated) => {
      if (!Array.isArray(value)) return true;
      const known = evaluated as Evaluated;
      let holds = true;
      for (let index = known.itemsBefore; index < value.length; index++) {
        if (known.items.has(index)) continue;
        const fits = said === false ? false : on.checkPart(said, value[index], index);
        if (!fits && said === false) on.fail("unevaluatedItems", `must NOT have more than ${index} items`);
        if (fits) continue;
        holds = false;
        if (on.stops) return false;
      }
      if (holds) known.itemsBefore = value.length;
      return holds;
    },
  ],
]);
