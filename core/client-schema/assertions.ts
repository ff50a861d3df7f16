/** The JSON Schema keywords about the value itself. Their messages are those of Ajv, which the rest of the service uses. */
import * as library from "ajv-formats/dist/formats.js";
import { isObject } from "../lib/is-object.ts";
import type { Assertion, Interpreter } from "./interpreter.ts";
import { compileExpression, type Pattern } from "./pattern.ts";
import type { WorkBudget } from "./work.ts";

// The formats of `ajv-formats`. Those that are regular expressions are matched with our own engine, in linear time.

type FormatDefinition = (typeof library.fullFormats)[keyof typeof library.fullFormats];

const FORMATS: ReadonlyMap<string, FormatDefinition> = new Map(
  Object.entries(library.fullFormats) as [string, FormatDefinition][],
);
const compiledPatterns = new Map<RegExp, Pattern>();

/** Whether a value has a format. Unknown formats, and formats of other types, are always valid. */
function hasFormat(name: string, value: unknown, work: WorkBudget): boolean {
  const format = FORMATS.get(name);
  if (format === undefined || format === true) return true;
  if (typeof value === "number") return !isNumberFormat(format) || format.validate(value) === true;
  if (typeof value !== "string" || isNumberFormat(format)) return true;
  work.spend(value.length);
  if (format instanceof RegExp) return compileFormat(format).test(value, work);
  const validate = typeof format === "function" ? format : (format as { validate: (text: string) => boolean }).validate;
  return validate(value) === true;
}

const isNumberFormat = (
  format: FormatDefinition,
): format is FormatDefinition & { type: "number"; validate: (value: number) => boolean } =>
  typeof format === "object" && (format as { type?: string }).type === "number";

function compileFormat(expression: RegExp): Pattern {
  let pattern = compiledPatterns.get(expression);
  if (pattern === undefined) {
    pattern = compileExpression(expression.source, expression.flags);
    compiledPatterns.set(expression, pattern);
  }
  return pattern;
}

const IS_TYPE: Readonly<Record<string, (value: unknown) => boolean>> = {
  string: (value) => typeof value === "string",
  number: Number.isFinite,
  integer: (value) => Number.isInteger(value),
  boolean: (value) => typeof value === "boolean",
  null: (value) => value === null,
  array: Array.isArray,
  object: isObject,
};

const compareNumber =
  (holds: (value: number, limit: number) => boolean, words: string): Assertion =>
  (interpreter, limit, value) =>
    typeof value !== "number" || holds(value, limit as number) || interpreter.fail(words, `must be ${words} ${limit}`);

const compareSize =
  (
    sizeOf: (value: unknown, interpreter: Interpreter) => number | null,
    keyword: string,
    isMaximum: boolean,
    unit: string,
  ): Assertion =>
  (interpreter, limit, value) => {
    const size = sizeOf(value, interpreter);
    if (size === null || (isMaximum ? size <= (limit as number) : size >= (limit as number))) return true;
    return interpreter.fail(keyword, `must NOT have ${isMaximum ? "more" : "fewer"} than ${limit} ${unit}`);
  };

/** The number of code points, not of UTF-16 code units. */
function stringLength(value: unknown, interpreter: Interpreter): number | null {
  if (typeof value !== "string") return null;
  interpreter.work.spend(value.length >> 4);
  let length = value.length;
  for (let at = 0; at < value.length - 1; at++)
    if (value.codePointAt(at)! > 0xffff) [length, at] = [length - 1, at + 1];
  return length;
}

const itemCount = (value: unknown) => (Array.isArray(value) ? value.length : null);

function propertyCount(value: unknown, interpreter: Interpreter): number | null {
  if (!isObject(value)) return null;
  const { length } = Object.keys(value);
  interpreter.work.spend(length >> 2);
  return length;
}

export const isNamed = (
  interpreter: Interpreter,
  key: string,
  { properties, patternProperties }: Readonly<Record<string, unknown>>,
): boolean => {
  if (isObject(properties) && Object.hasOwn(properties, key)) return true;
  for (const pattern in (patternProperties as object | undefined) ?? {})
    if (interpreter.matches(pattern, key)) return true;
  return false;
};

const dependent: Assertion = (interpreter, argument, value) => {
  if (!isObject(value)) return true;
  let holds = true;
  for (const [property, needed] of Object.entries(argument as Record<string, unknown>)) {
    interpreter.work.spend(1);
    if (!Array.isArray(needed) || !Object.hasOwn(value, property)) continue;
    for (const name of needed) {
      interpreter.work.spend(1);
      if (Object.hasOwn(value, name)) continue;
      holds = interpreter.fail("dependentRequired", `must have property ${name} when property ${property} is present`, {
        missingProperty: name,
        property,
      });
      if (interpreter.canStop) return false;
    }
  }
  return holds;
};

export const ASSERTIONS: ReadonlyMap<string, Assertion> = new Map<string, Assertion>([
  [
    "type",
    (interpreter, argument, value, { nullable }) => {
      const types = Array.isArray(argument) ? (argument as string[]) : [argument as string];
      if (types.some((type) => IS_TYPE[type]!(value)) || (nullable === true && value === null)) return true;
      return interpreter.fail("type", `must be ${types.join()}`, { type: argument });
    },
  ],
  [
    "enum",
    (interpreter, argument, value) =>
      (argument as unknown[]).some((one) => isEqual(one, value, interpreter.work)) ||
      interpreter.fail("enum", "must be equal to one of the allowed values", { allowedValues: argument }),
  ],
  [
    "const",
    (interpreter, argument, value) =>
      isEqual(argument, value, interpreter.work) ||
      interpreter.fail("const", "must be equal to constant", { allowedValue: argument }),
  ],
  ["maximum", compareNumber((value, limit) => value <= limit, "<=")],
  ["minimum", compareNumber((value, limit) => value >= limit, ">=")],
  ["exclusiveMaximum", compareNumber((value, limit) => value < limit, "<")],
  ["exclusiveMinimum", compareNumber((value, limit) => value > limit, ">")],
  ["multipleOf", compareNumber((value, limit) => Number.isInteger(value / limit), "multiple of")],
  ["maxLength", compareSize(stringLength, "maxLength", true, "characters")],
  ["minLength", compareSize(stringLength, "minLength", false, "characters")],
  ["maxItems", compareSize(itemCount, "maxItems", true, "items")],
  ["minItems", compareSize(itemCount, "minItems", false, "items")],
  ["maxProperties", compareSize(propertyCount, "maxProperties", true, "properties")],
  ["minProperties", compareSize(propertyCount, "minProperties", false, "properties")],
  [
    "pattern",
    (interpreter, argument, value) =>
      typeof value !== "string" ||
      interpreter.matches(argument as string, value) ||
      interpreter.fail("pattern", `must match pattern "${argument}"`),
  ],
  [
    "format",
    (interpreter, argument, value) =>
      typeof argument !== "string" ||
      hasFormat(argument, value, interpreter.work) ||
      interpreter.fail("format", `must match format "${argument}"`),
  ],
  [
    "uniqueItems",
    (interpreter, argument, value) => {
      const found = argument === true && Array.isArray(value) ? duplicatesIn(value, interpreter.work) : null;
      if (found === null) return true;
      const message = `must NOT have duplicate items (items ## ${found[0]} and ${found[1]} are identical)`;
      return interpreter.fail("uniqueItems", message);
    },
  ],
  [
    "required",
    (interpreter, argument, value) => {
      if (!isObject(value)) return true;
      let holds = true;
      for (const missingProperty of argument as string[]) {
        interpreter.work.spend(1);
        if (Object.hasOwn(value, missingProperty)) continue;
        holds = interpreter.fail("required", `must have required property '${missingProperty}'`, { missingProperty });
        if (interpreter.canStop) return false;
      }
      return holds;
    },
  ],
  ["dependentRequired", dependent],
  [
    "additionalProperties",
    (interpreter, argument, value, schema) => {
      if (argument !== false || !isObject(value)) return true;
      let holds = true;
      for (const additionalProperty in value) {
        interpreter.work.spend(1);
        if (isNamed(interpreter, additionalProperty, schema)) continue;
        holds = interpreter.fail("additionalProperties", "must NOT have additional properties", { additionalProperty });
        if (interpreter.canStop) return false;
      }
      return holds;
    },
  ],
]);

export const dependencies: Assertion = dependent;

// Equality of JSON values as JSON Schema defines it.

function isEqual(a: unknown, b: unknown, work: WorkBudget): boolean {
  work.spend(1);
  if (a === b) return true;
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null) return false;
  if (Array.isArray(a) || Array.isArray(b)) {
    if (!Array.isArray(a) || !Array.isArray(b) || a.length !== b.length) return false;
    return a.every((item, index) => isEqual(item, b[index], work));
  }
  const keys = Object.keys(a);
  work.spend(keys.length);
  if (keys.length !== Object.keys(b).length) return false;
  return keys.every((key) => Object.hasOwn(b, key) && isEqual(a[key as never], b[key as never], work));
}

/** The indexes of two equal items, or null. Linear: items are compared by their canonical text. */
function duplicatesIn(items: readonly unknown[], work: WorkBudget): [number, number] | null {
  const indexes = new Map<unknown, number>();
  for (const [index, item] of items.entries()) {
    const key =
      typeof item === "object" && item !== null
        ? canonicalText(item, work)
        : typeof item === "string"
          ? `"${item}`
          : item;
    work.spend(1);
    const before = indexes.get(key);
    if (before !== undefined) return [before, index];
    indexes.set(key, index);
  }
  return null;
}

function canonicalText(value: unknown, work: WorkBudget): string {
  work.spend(1);
  if (typeof value !== "object" || value === null) {
    const text = JSON.stringify(value);
    work.spend(text.length >> 3);
    return text;
  }
  if (Array.isArray(value)) return `[${value.map((item) => canonicalText(item, work)).join()}]`;
  const map = value as Record<string, unknown>;
  const keys = Object.keys(map).sort();
  work.spend(keys.length);
  return `{${keys.map((key) => `${JSON.stringify(key)}:${canonicalText(map[key], work)}`).join()}}`;
}
