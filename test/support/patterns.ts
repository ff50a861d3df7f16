/** Every regular expression of the source: literals, those that are built when a module is loaded, and patterns of schemas. */
import { readdirSync, readFileSync } from "node:fs";
import { join, relative } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import ts from "typescript";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));

export interface Pattern {
  /** `core/lib/duration.ts:7`, or the path of a schema. */
  readonly where: string;
  readonly source: string;
  readonly flags: string;
}

interface SourcePatterns {
  readonly patterns: Pattern[];
  /** Where a regular expression is built from texts, and how. */
  readonly built: { readonly where: string; readonly text: string }[];
}

const files = (folder: string, name: RegExp): string[] =>
  readdirSync(join(ROOT, folder), { recursive: true, encoding: "utf8" })
    .filter((file) => name.test(file))
    .map((file) => join(folder, file))
    .sort();

/** @param folders of TypeScript and JavaScript */
export function patternsOfSource(folders: readonly string[]): SourcePatterns {
  const found: SourcePatterns = { patterns: [], built: [] };
  for (const file of folders.flatMap((folder) => files(folder, /\.m?[jt]s$/))) patternsOfFile(file, found);
  return found;
}

function patternsOfFile(file: string, { patterns, built }: SourcePatterns): void {
  const text = readFileSync(join(ROOT, file), "utf8");
  const source = ts.createSourceFile(file, text, ts.ScriptTarget.Latest);
  const whereOf = (node: ts.Node) => `${file}:${source.getLineAndCharacterOfPosition(node.getStart(source)).line + 1}`;
  const visit = (node: ts.Node): void => {
    if (ts.isRegularExpressionLiteral(node)) {
      const end = node.text.lastIndexOf("/");
      patterns.push({ where: whereOf(node), source: node.text.slice(1, end), flags: node.text.slice(end + 1) });
    } else if (isNamed(node, "RegExp")) built.push({ where: whereOf(node), text: node.getText(source) });
    else if (isSchemaPattern(node)) patterns.push({ where: whereOf(node), source: node.initializer.text, flags: "u" });
    ts.forEachChild(node, visit);
  };
  visit(source);
}

const isNamed = (node: ts.Node, name: string): boolean =>
  (ts.isNewExpression(node) || ts.isCallExpression(node)) &&
  ts.isIdentifier(node.expression) &&
  node.expression.text === name;

/** `pattern: "^[a-z]+$"`, as schemas within the source have it. */
const isSchemaPattern = (node: ts.Node): node is ts.PropertyAssignment & { initializer: ts.StringLiteralLike } =>
  ts.isPropertyAssignment(node) &&
  ts.isIdentifier(node.name) &&
  node.name.text === "pattern" &&
  ts.isStringLiteralLike(node.initializer);

/** `pattern` and the names of `patternProperties`, which are matched as Unicode. */
export function patternsOfSchemas(folder: string): Pattern[] {
  const found = new Map<string, Pattern>();
  const visit = (node: unknown, where: string): void => {
    if (typeof node !== "object" || node === null) return;
    const { pattern, patternProperties = {} } = node as { pattern?: unknown; patternProperties?: object };
    for (const source of [...(typeof pattern === "string" ? [pattern] : []), ...Object.keys(patternProperties)])
      if (!found.has(source)) found.set(source, { where, source, flags: "u" });
    for (const [key, value] of Object.entries(node)) visit(value, `${where}/${key}`);
  };
  for (const file of files(folder, /\.json$/)) visit(JSON.parse(readFileSync(join(ROOT, file), "utf8")), file);
  return [...found.values()];
}

/**
 * What `modules` build with `new RegExp` while `use` imports and uses them. They must not have been imported before.
 *
 * @param modules paths from the root
 */
export async function patternsBuiltBy(
  modules: readonly string[],
  use: (...loaded: unknown[]) => void,
): Promise<Pattern[]> {
  const found: Pattern[] = [];
  const Native = globalThis.RegExp;
  const record = (expression: RegExp): RegExp => {
    const where = placeOf(new Error().stack ?? "");
    if (where !== null) found.push({ where, source: expression.source, flags: expression.flags });
    return expression;
  };
  globalThis.RegExp = new Proxy(Native, {
    construct: (target, given, as) => record(Reflect.construct(target, given, as)),
    apply: (target, self, given) => record(Reflect.apply(target, self, given)),
  });
  try {
    const loaded: unknown[] = [];
    for (const module of modules) loaded.push(await import(pathToFileURL(join(ROOT, module)).href));
    use(...loaded);
  } finally {
    globalThis.RegExp = Native;
  }
  return found;
}

/** The line of the source that stands first in a stack, outside this file. */
function placeOf(stack: string): string | null {
  for (const line of stack.split("\n").slice(1)) {
    const [, path, number] = /\(?((?:file:\/\/)?\/\S+?)(?:\?[^:]*)?:(\d+):\d+\)?$/.exec(line) ?? [];
    if (path === undefined) continue;
    const file = relative(ROOT, path.startsWith("file:") ? fileURLToPath(path) : path);
    if (/^(core|plugins)\//.test(file)) return `${file}:${number}`;
  }
  return null;
}
