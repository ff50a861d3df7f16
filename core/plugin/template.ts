/** Templates for plugins: `{{ expression }}` in any JSON value, as in the manifest. */
import { compileTemplate as compile } from "../manifest/expression.ts";

/** A template: compiled once, rendered often. Rendering throws an Error that names the expression when a field is missing. */
export type Template = (scope: Readonly<Record<string, unknown>>) => unknown;

/**
 * Compiles every `{{ expression }}` in the strings of a value; the rest of the value is unchanged.
 *
 * @param names the variables that expressions may use
 * @throws Error that describes an invalid expression
 */
export function compilePluginTemplate(value: unknown, names: readonly string[]): Template {
  const compiled = compile(value, names);
  if ("problem" in compiled) throw new Error(compiled.problem);
  return compiled.evaluate;
}
