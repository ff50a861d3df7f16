/** Templates for plugins: `{{ expression }}` in any JSON value, as in the manifest. */
import { compileTemplate as compile } from "../manifest/expression.ts";

/** Compiled once, rendered often. Rendering throws an Error that names the expression when a field is missing. */
export type Template = (scope: Readonly<Record<string, unknown>>) => unknown;

/**
 * Compiles a value: every `{{ expression }}` inside its strings, a value without any as it is.
 *
 * @param names what expressions may refer to
 * @throws Error that says what is wrong with an expression
 */
export function compilePluginTemplate(value: unknown, names: readonly string[]): Template {
  const compiled = compile(value, names);
  if ("problem" in compiled) throw new Error(compiled.problem);
  return compiled.evaluate;
}
