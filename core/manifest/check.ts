/** What all checks of references share. The document may be invalid, so nothing here relies on its structure. */
import { isObject } from "../lib/is-object.ts";
import type { PluginKind } from "../plugin/plugin.ts";
import { type CompileResult, compileTemplate } from "./expression.ts";
import { hint, type Issue, type Path } from "./manifest.ts";

/** Names of the plugins that were loaded. */
export type KnownPlugins = Readonly<Record<PluginKind, readonly string[]>>;

export type Json = Readonly<Record<string, unknown>>;

export interface CheckContext {
  readonly document: Json;
  readonly plugins: KnownPlugins;
  /** Whether the name of a section is misspelt, so that its content is unknown. The misspelling is reported elsewhere. */
  readonly hasMisspeltSection: boolean;
  /** @param offset of a character in the text at this path, to place the issue there */
  report(path: Path, message: string, severity?: Issue["severity"], offset?: number): void;
  /** Whether the file itself has a value there, as opposed to a default. */
  isWritten(path: Path): boolean;
}

export const entriesOf = (value: unknown): [string, unknown][] => (isObject(value) ? Object.entries(value) : []);

/** The value if it is a map, else an empty one. */
export const mapOf = (value: unknown): Json => (isObject(value) ? value : {});

/** The entries that are maps: what else stands there is reported by the schema. */
export const mapsOf = (value: unknown): [string, Json][] =>
  entriesOf(value).filter((entry): entry is [string, Json] => isObject(entry[1]));

export const keysOf = (value: unknown): string[] => (isObject(value) ? Object.keys(value) : []);

export const listOf = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : []);

/** Reports a name that is not among `known`: `unknown tool "ad", did you mean "add"?` */
export function checkName(
  check: CheckContext,
  path: Path,
  what: string,
  name: unknown,
  known: readonly string[],
): void {
  if (typeof name !== "string" || name === "" || known.includes(name)) return;
  if (known.length === 0 && check.hasMisspeltSection) return;
  check.report(path, `unknown ${what} "${name}"${hint(name, known)}`);
}

/** Reports items that are in a list more than once. */
export function checkRepeats(check: CheckContext, path: Path, items: readonly unknown[]): void {
  for (const [index, item] of items.entries()) {
    if (typeof item === "string" && items.indexOf(item) < index)
      check.report([...path, index], `"${item}" is listed twice`);
  }
}

/** Reports an expression that does not compile, and warnings about one that does. */
export function checkCompiled(check: CheckContext, path: Path, compiled: CompileResult): void {
  if ("problem" in compiled) check.report([...path, ...compiled.path], compiled.problem, "error", compiled.offset);
  else for (const { problem, offset } of compiled.warnings ?? []) check.report(path, problem, "warning", offset);
}

/** Every text inside a value with its path: each is compiled separately, so that one problem does not hide another. */
export function collectTexts(value: unknown, path: Path): { text: string; path: Path }[] {
  if (typeof value === "string") return [{ text: value, path }];
  if (Array.isArray(value)) return value.flatMap((item, index) => collectTexts(item, [...path, index]));
  return entriesOf(value).flatMap(([key, item]) => collectTexts(item, [...path, key]));
}

/** Reports every expression inside a value that does not compile. */
export function checkTemplate(check: CheckContext, path: Path, value: unknown, names: readonly string[]): void {
  for (const { text, path: here } of collectTexts(value, path))
    checkCompiled(check, here, compileTemplate(text, names));
}

/** Every cycle of a graph once, as the names along it, with the first one repeated at the end. */
export function findCycles(graph: ReadonlyMap<string, readonly string[]>): string[][] {
  const cycles: string[][] = [];
  const done = new Set<string>();
  const visit = (name: string, trail: readonly string[]): void => {
    const start = trail.indexOf(name);
    if (start >= 0) cycles.push([...trail.slice(start), name]);
    if (start >= 0 || done.has(name)) return;
    for (const next of graph.get(name) ?? []) visit(next, [...trail, name]);
    done.add(name);
  };
  for (const name of graph.keys()) visit(name, []);
  return cycles;
}
