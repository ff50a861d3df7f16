/** The formats of `ajv-formats`. Those that are regular expressions are matched with our own engine, in linear time. */
import * as library from "ajv-formats/dist/formats.js";
import { compileExpression, type Pattern } from "./pattern.ts";
import type { WorkBudget } from "./work.ts";

type FormatDefinition = (typeof library.fullFormats)[keyof typeof library.fullFormats];

const FORMATS: ReadonlyMap<string, FormatDefinition> = new Map(
  Object.entries(library.fullFormats) as [string, FormatDefinition][],
);
const compiledPatterns = new Map<RegExp, Pattern>();

/** Whether a value has a format. Unknown formats, and formats of other types, are always valid. */
export function hasFormat(name: string, value: unknown, work: WorkBudget): boolean {
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
