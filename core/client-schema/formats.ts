/** The formats of `ajv-formats`; those that are expressions are matched like patterns of strangers. */
import * as library from "ajv-formats/dist/formats.js";
import { compileExpression, type Pattern } from "./pattern.ts";
import type { WorkBudget } from "./work.ts";

type Known = (typeof library.fullFormats)[keyof typeof library.fullFormats];

const FORMATS: ReadonlyMap<string, Known> = new Map(Object.entries(library.fullFormats) as [string, Known][]);
const compiled = new Map<RegExp, Pattern>();

/** Whether a value has a format; what is not known, or is about other types, counts as had. */
export function hasFormat(name: string, value: unknown, work: WorkBudget): boolean {
  const format = FORMATS.get(name);
  if (format === undefined || format === true) return true;
  if (typeof value === "number") return !isOfNumbers(format) || format.validate(value) === true;
  if (typeof value !== "string" || isOfNumbers(format)) return true;
  work.spend(value.length);
  if (format instanceof RegExp) return patternOf(format).test(value, work);
  const validate = typeof format === "function" ? format : (format as { validate: (text: string) => boolean }).validate;
  return validate(value) === true;
}

const isOfNumbers = (format: Known): format is Known & { type: "number"; validate: (value: number) => boolean } =>
  typeof format === "object" && (format as { type?: string }).type === "number";

function patternOf(expression: RegExp): Pattern {
  let pattern = compiled.get(expression);
  if (pattern === undefined) {
    pattern = compileExpression(expression.source, expression.flags);
    compiled.set(expression, pattern);
  }
  return pattern;
}
