/** Keywords that speak of a value itself. Their words are those of Ajv, which checks everything else here. */
import { isObject } from "../lib/is-object.ts";
import { duplicatesIn, isEqual } from "./equal.ts";
import { hasFormat } from "./formats.ts";
import type { Interpreter } from "./interpreter.ts";

/** Whether a value holds what the keyword says. */
type Assertion = (on: Interpreter, said: unknown, value: unknown, schema: Readonly<Record<string, unknown>>) => boolean;

const IS_TYPE: Readonly<Record<string, (value: unknown) => boolean>> = {
  string: (value) => typeof value === "string",
  number: (value) => typeof value === "number",
  integer: (value) => Number.isInteger(value),
  boolean: (value) => typeof value === "boolean",
  null: (value) => value === null,
  array: Array.isArray,
  object: isObject,
};

/** Of values of one type: others hold it. */
const ofNumbers =
  (holds: (value: number, limit: number) => boolean, words: string): Assertion =>
  (on, limit, value) =>
    typeof value !== "number" || holds(value, limit as number) || on.fail(words, `must be ${words} ${limit}`);

const ofSizes =
  (
    sizeOf: (value: unknown, on: Interpreter) => number | null,
    keyword: string,
    most: boolean,
    unit: string,
  ): Assertion =>
  (on, limit, value) => {
    const size = sizeOf(value, on);
    if (size === null || (most ? size <= (limit as number) : size >= (limit as number))) return true;
    return on.fail(keyword, `must NOT have ${most ? "more" : "fewer"} than ${limit} ${unit}`);
  };

/** Characters, not the units that a text is stored in. */
function lengthOf(value: unknown, on: Interpreter): number | null {
  if (typeof value !== "string") return null;
  on.work.spend(value.length >> 4);
  let length = value.length;
  for (let at = 0; at < value.length - 1; at++)
    if (value.codePointAt(at)! > 0xffff) [length, at] = [length - 1, at + 1];
  return length;
}

const itemsOf = (value: unknown) => (Array.isArray(value) ? value.length : null);

function propertiesOf(value: unknown, on: Interpreter): number | null {
  if (!isObject(value)) return null;
  const { length } = Object.keys(value);
  on.work.spend(length >> 2);
  return length;
}

export const isNamed = (
  on: Interpreter,
  key: string,
  { properties, patternProperties }: Readonly<Record<string, unknown>>,
): boolean => {
  if (isObject(properties) && Object.hasOwn(properties, key)) return true;
  for (const pattern in (patternProperties as object | undefined) ?? {}) if (on.matches(pattern, key)) return true;
  return false;
};

const dependent: Assertion = (on, said, value) => {
  if (!isObject(value)) return true;
  let holds = true;
  for (const [property, needed] of Object.entries(said as Record<string, unknown>)) {
    on.work.spend(1);
    if (!Array.isArray(needed) || !Object.hasOwn(value, property)) continue;
    for (const name of needed) {
      on.work.spend(1);
      if (Object.hasOwn(value, name)) continue;
      holds = on.fail("dependentRequired", `must have property ${name} when property ${property} is present`);
      if (on.stops) return false;
    }
  }
  return holds;
};

export const ASSERTIONS: ReadonlyMap<string, Assertion> = new Map<string, Assertion>([
  [
    "type",
    (on, said, value, { nullable }) => {
      const types = Array.isArray(said) ? (said as string[]) : [said as string];
      if (types.some((type) => IS_TYPE[type]!(value)) || (nullable === true && value === null)) return true;
      return on.fail("type", `must be ${types.join()}`, { type: said });
    },
  ],
  [
    "enum",
    (on, said, value) =>
      (said as unknown[]).some((one) => isEqual(one, value, on.work)) ||
      on.fail("enum", "must be equal to one of the allowed values", { allowedValues: said }),
  ],
  [
    "const",
    (on, said, value) =>
      isEqual(said, value, on.work) || on.fail("const", "must be equal to constant", { allowedValue: said }),
  ],
  ["maximum", ofNumbers((value, limit) => value <= limit, "<=")],
  ["minimum", ofNumbers((value, limit) => value >= limit, ">=")],
  ["exclusiveMaximum", ofNumbers((value, limit) => value < limit, "<")],
  ["exclusiveMinimum", ofNumbers((value, limit) => value > limit, ">")],
  ["multipleOf", ofNumbers((value, limit) => Number.isInteger(value / limit), "multiple of")],
  ["maxLength", ofSizes(lengthOf, "maxLength", true, "characters")],
  ["minLength", ofSizes(lengthOf, "minLength", false, "characters")],
  ["maxItems", ofSizes(itemsOf, "maxItems", true, "items")],
  ["minItems", ofSizes(itemsOf, "minItems", false, "items")],
  ["maxProperties", ofSizes(propertiesOf, "maxProperties", true, "properties")],
  ["minProperties", ofSizes(propertiesOf, "minProperties", false, "properties")],
  [
    "pattern",
    (on, said, value) =>
      typeof value !== "string" ||
      on.matches(said as string, value) ||
      on.fail("pattern", `must match pattern "${said}"`),
  ],
  [
    "format",
    (on, said, value) =>
      typeof said !== "string" || hasFormat(said, value, on.work) || on.fail("format", `must match format "${said}"`),
  ],
  [
    "uniqueItems",
    (on, said, value) => {
      const found = said === true && Array.isArray(value) ? duplicatesIn(value, on.work) : null;
      if (found === null) return true;
      const message = `must NOT have duplicate items (items ## ${found[0]} and ${found[1]} are identical)`;
      return on.fail("uniqueItems", message);
    },
  ],
  [
    "required",
    (on, said, value) => {
      if (!isObject(value)) return true;
      let holds = true;
      for (const missingProperty of said as string[]) {
        on.work.spend(1);
        if (Object.hasOwn(value, missingProperty)) continue;
        holds = on.fail("required", `must have required property '${missingProperty}'`, { missingProperty });
        if (on.stops) return false;
      }
      return holds;
    },
  ],
  ["dependentRequired", dependent],
  [
    "additionalProperties",
    (on, said, value, schema) => {
      if (said !== false || !isObject(value)) return true;
      let holds = true;
      for (const additionalProperty in value) {
        on.work.spend(1);
        if (isNamed(on, additionalProperty, schema)) continue;
        holds = on.fail("additionalProperties", "must NOT have additional properties", { additionalProperty });
        if (on.stops) return false;
      }
      return holds;
    },
  ],
]);

export const dependencies: Assertion = dependent;
