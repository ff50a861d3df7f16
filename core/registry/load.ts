/** Loads the plugins of all folders: find, import, check, register. Every broken plugin is reported, and the others still load. */
import { type Dirent, existsSync, readdirSync, statSync } from "node:fs";
import { basename, dirname, extname, join, parse, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { caught, messageOf } from "../lib/errors.ts";
import { isObject } from "../lib/is-object.ts";
import { formatPath, type Issue, suggest } from "../manifest/manifest.ts";
import { lineOf } from "../manifest/read.ts";
import { keywordNotices } from "../manifest/unknown-keywords.ts";
import type { Plugin, PluginKind } from "../plugin/plugin.ts";
import { inTime } from "./host.ts";
import { fieldName, fieldProblems, isKind, kindRow, NAME, PLUGIN_KINDS } from "./kinds.ts";
import { pluginSchemaProblems } from "./plugin-schema.ts";
import { type PluginPhase, type PluginProblem, shortPath } from "./problem.ts";
import { Registry, type RegistryEntry, registryKey } from "./registry.ts";
import { prepareResolution } from "./resolution.ts";
import { realFolder } from "./sources.ts";

// Finds the plugin files of a folder: `<root>/<kind's folder>/*.{ts,mts,js,mjs}`. Reads names, never contents.

interface PluginFile {
  readonly kind: PluginKind;
  /** Absolute path. */
  readonly file: string;
  /** The file's name without its extension: the plugin's name unless the plugin sets another. */
  readonly stem: string;
}

interface Discovery {
  /** Sorted by path. */
  readonly files: readonly PluginFile[];
  readonly problems: readonly PluginProblem[];
}

const ENDINGS = [".ts", ".mts", ".js", ".mjs"];
/** Files beside plugins that are not plugins. */
const IGNORED = /^(\.|readme|licen[cs]e|changelog|package(-lock)?\.json$|tsconfig\.)|\.d\.[cm]?ts$|\.map$|~$/i;
const FOLDERS = PLUGIN_KINDS.map(({ folder }) => folder);
const FOLDER_LIST = FOLDERS.map((folder) => `${folder}/`).join(", ");

/**
 * The plugin folders of a manifest: `plugins/` beside it, if it exists, and those that it names.
 *
 * @param folder of the manifest
 */
export function pluginFolders(folder: string, named: readonly string[] = []): string[] {
  const beside = join(folder, "plugins");
  return [...(existsSync(beside) ? [beside] : []), ...named.map((path) => resolve(folder, path))];
}

/**
 * Folders inside a kind's folder belong to the plugins (helpers, fixtures) and are not searched.
 *
 * @param root absolute path of a plugin folder
 */
function discover(root: string): Discovery {
  const files: PluginFile[] = [];
  const problems: PluginProblem[] = [];
  const report = (file: string, cause: string) => void problems.push({ file, phase: "import", cause });

  let entries: Entry[];
  try {
    entries = listEntries(root);
  } catch (error) {
    report(root, `the plugin folder cannot be read: ${readFailure(error)}`);
    return { files, problems };
  }

  for (const entry of entries) {
    const path = join(root, entry.name);
    if (!entry.folder) {
      if (ENDINGS.includes(extname(entry.name)))
        report(path, `a plugin file must be in the folder of its kind (${FOLDER_LIST}): move it there`);
      continue;
    }
    const kind = PLUGIN_KINDS.find(({ folder }) => folder === entry.name)?.kind;
    if (kind === undefined) problems.push(...strayFiles(path));
    else
      for (const { name, folder } of listEntries(path)) {
        const file = join(path, name);
        const ending = extname(name);
        if (folder) continue;
        if (ENDINGS.includes(ending)) files.push({ kind, file, stem: basename(name, ending) });
        else report(file, `a plugin file ends in ${ENDINGS.join(", ")}, not in ${ending === "" ? "nothing" : ending}`);
      }
  }
  return { files, problems };
}

interface Entry {
  name: string;
  folder: boolean;
}

function listEntries(folder: string): Entry[] {
  return readdirSync(folder, { withFileTypes: true })
    .filter((entry) => !IGNORED.test(entry.name) && entry.name !== "node_modules")
    .map((entry) => ({ name: entry.name, folder: isFolder(entry, folder) }))
    .sort((left, right) => (left.name < right.name ? -1 : 1));
}

/** Follows symbolic links, because a mounted volume may consist of them. */
function isFolder(entry: Dirent, parent: string): boolean {
  if (!entry.isSymbolicLink()) return entry.isDirectory();
  return statSync(join(parent, entry.name), { throwIfNoEntry: false })?.isDirectory() ?? false;
}

/** Plugin files in a folder with another name, such as `tool/add.ts`: a mistyped folder must not lose plugins silently. */
function strayFiles(folder: string): PluginProblem[] {
  const name = basename(folder);
  const meant = suggest(name, FOLDERS);
  const hint = meant === undefined ? `the folders are ${FOLDER_LIST}` : `did you mean ${meant}/?`;
  return listEntries(folder)
    .filter((entry) => !entry.folder && ENDINGS.includes(extname(entry.name)))
    .map((entry) => ({
      file: join(folder, entry.name),
      phase: "import",
      cause: `${name}/ is not the folder of a kind of plugin: ${hint} (helpers go in a folder inside a kind's folder)`,
    }));
}

const READ_FAILURES: Readonly<Record<string, string>> = {
  ENOENT: "it does not exist",
  ENOTDIR: "it is not a folder",
  EACCES: "permission denied",
};

function readFailure(error: unknown): string {
  const { code, message } = error as NodeJS.ErrnoException;
  return READ_FAILURES[code ?? ""] ?? message;
}

// Issues about plugins, for the report at boot.

/** Names by kind, including those of files that failed to load: their failure is reported, so their name need not be unknown too. */
export function knownPlugins(
  registry: Registry,
  problems: readonly PluginProblem[],
): Record<PluginKind, readonly string[]> {
  const rows = PLUGIN_KINDS.map(({ kind, folder }) => {
    const failed = problems
      .filter(({ file }) => basename(dirname(file)) === folder)
      .map(({ file }) => parse(file).name);
    return [kind, [...registry.names(kind), ...failed]];
  });
  return Object.fromEntries(rows);
}

/** The warning that a plugin of the user replaces a built-in one. */
export const replacementIssue = ({ kind, name, file }: RegistryEntry): Issue => ({
  severity: "warning",
  file: shortPath(file),
  line: 1,
  column: 1,
  path: name,
  message: `this ${kind} replaces the built-in one`,
});

/** The issue of a plugin. Import failures have its position as `line 4, column 1`; others name a field, which is looked for. */
export function pluginIssue({ file, phase, cause }: PluginProblem): Issue {
  const [, line = lineOf(file, cause), column = 1] = /\bline (\d+)(?:, column (\d+))?/.exec(cause) ?? [];
  const place = { line: Number(line), column: Number(column) };
  return { severity: "error", file: shortPath(file), ...place, path: phase, message: cause };
}

// Describes why a plugin file could not be imported, in one line for its author: no stack, no paths of the loader.

/** The message of esbuild (inside tsx): `/path/add.ts:4:0: ERROR: Unexpected "}"`, with columns from 0. */
const TRANSFORM_ERROR = /:(\d+):(\d+): ERROR: (.+)/g;
const NOT_FOUND = /^Cannot find (?:package|module) '([^']+)'(?: imported from (.+))?/;
/** The name of this package, and a wrong short form of it, which is a package of somebody else. */
const OWN_NAMES = ["penstock-gateway", "penstock"];
const NOT_FOUND_CODES = ["ERR_MODULE_NOT_FOUND", "MODULE_NOT_FOUND"];

/** @param file the plugin; the error may be in a file that it imports */
export function describeImportFailure(thrown: unknown, file: string): string {
  const error = caught(thrown);
  const message = messageOf(error);
  const { code, name, stack } = (error instanceof Error ? error : {}) as NodeJS.ErrnoException;

  const syntax = [...message.matchAll(TRANSFORM_ERROR)].map(
    ([, line, column, text]) => `line ${line}, column ${Number(column) + 1}: ${text}`,
  );
  if (syntax.length > 0) return `syntax error in ${syntax.join("; ")}`;
  const [, line] = stack?.split(`${file}:`) ?? [];
  const at = line === undefined ? "" : ` (line ${parseInt(line, 10)})`;
  // Linking fails with a SyntaxError too, when an import has a name that the other module does not export.
  if (message.startsWith("The requested module")) return `${oneLine(message)}${at}`;
  if (name === "SyntaxError") return `syntax error: ${oneLine(message)}`;

  const missing = NOT_FOUND_CODES.includes(code ?? "") ? NOT_FOUND.exec(message) : null;
  if (missing !== null) return describeMissing(missing[1]!, missing[2], file);

  return `threw while it was imported${at}: ${oneLine(message)}`;
}

function describeMissing(specifier: string, importer: string | undefined, file: string): string {
  const from = importer === undefined || importer === file ? "" : `, which ${shortPath(importer)} imports`;
  if (/^[./]|^file:/.test(specifier)) return `cannot find ${shortPath(specifier)}${from}`;
  const name = specifier.split("/", specifier.startsWith("@") ? 2 : 1).join("/");
  if (OWN_NAMES.includes(name))
    return `there is no ${specifier}${from}: plugins import from "#plugin" or "penstock-gateway/plugin"`;
  const folder = packageFolder(importer ?? file, file);
  const here = folder === process.cwd();
  const place = here ? "" : `--prefix ${/\s/.test(folder) ? JSON.stringify(folder) : shortPath(folder)} `;
  return `package "${name}"${from === "" ? "" : `${from},`} is not installed in ${join(folder, "node_modules")} or a folder above: run npm install ${place}${name}`;
}

/** Where to install a package that a file needs: at the nearest package.json above it, else beside the folder of the plugins. */
function packageFolder(importer: string, file: string): string {
  for (let folder = dirname(importer); folder !== dirname(folder); folder = dirname(folder))
    if (existsSync(join(folder, "package.json"))) return folder;
  const root = dirname(dirname(file));
  return basename(root) === "plugins" ? dirname(root) : root;
}

const oneLine = (text: string) =>
  text
    .split("\n")
    .map((line) => line.trim())
    .filter(Boolean)
    .join(" ");

type Shaped = { plugin: Plugin; problems: [] } | { plugin: null; problems: string[] };

const rejected = (...problems: string[]): Shaped => ({ plugin: null, problems });

/** Checks that a file exports a plugin of the kind of its folder. @param namespace the result of `import()` */
function checkShape(namespace: Record<string, unknown>, kind: PluginKind): Shaped {
  const exported = unwrapDefault(namespace);
  if (exported === undefined) return rejected(`has no default export: write export default { kind: "${kind}", ... }`);
  if (!isObject(exported))
    return rejected(`the default export must be an object with kind: "${kind}", not ${typeName(exported)}`);
  if (exported.kind === undefined)
    return rejected(`kind is missing: add kind: "${kind}", or export through ${helperName(kind)} of #plugin`);
  if (exported.kind !== kind) return rejected(wrongKind(exported.kind, kind));
  const { fields } = kindRow(kind);
  const meant = misspelled(exported, fields.map(fieldName));
  const others = fieldProblems(
    exported,
    fields.filter((field) => !meant.has(field)),
  );
  const problems = [...others, ...[...meant].map(([field, key]) => `unknown key "${key}", did you mean "${field}"?`)];
  return problems.length > 0 ? rejected(...problems) : { plugin: exported as unknown as Plugin, problems: [] };
}

/** The default export. A CommonJS module seen from an ES module has its exports, including `default`, inside `default`. */
function unwrapDefault({ default: value }: Record<string, unknown>, depth = 2): unknown {
  const isModule = isObject(value) && value.kind === undefined && ("__esModule" in value || "default" in value);
  return isModule && depth > 0 ? unwrapDefault(value, depth - 1) : value;
}

function wrongKind(found: unknown, kind: PluginKind): string {
  const { folder } = kindRow(kind);
  if (!isKind(found)) return `kind must be "${kind}" in ${folder}/, not ${JSON.stringify(found) ?? typeName(found)}`;
  return `kind is "${found}", but the file is in ${folder}/: move it to ${kindRow(found).folder}/, or make it kind: "${kind}"`;
}

/** Misspelt keys by the field that is meant, which would be ignored silently. A key that resembles no field is the author's own. */
function misspelled(plugin: Record<string, unknown>, known: readonly string[]): Map<string, string> {
  const unknown = Object.keys(plugin).filter((key) => !known.includes(key));
  const meant = unknown.map((key) => [suggest(key, known) ?? "kind", key] as const);
  return new Map(meant.filter(([field]) => plugin[field] === undefined));
}

const helperName = (kind: PluginKind) => `define${kind.charAt(0).toUpperCase()}${kind.slice(1)}`;

function typeName(value: unknown): string {
  if (value === null) return "null";
  return Array.isArray(value) ? "a list" : `a ${typeof value}`;
}

/** A plugin that is part of Penstock. */
export interface BuiltInPlugin {
  readonly kind: PluginKind;
  readonly name: string;
  readonly plugin: Plugin;
}

interface LoadedPlugins {
  /** The plugins without a problem. */
  registry: Registry;
  /** All problems of all files, sorted by file. */
  problems: PluginProblem[];
  /** Probable mistakes that do not keep a plugin from being used. */
  notices: PluginProblem[];
  /** Plugins of the user that replace built-in ones. */
  replaced: RegistryEntry[];
}

/** Time limit of an import: a file that exceeds it waits at its top level for something that will not happen. */
const IMPORT_TIMEOUT_MS = 30_000;

/**
 * @param folders the user's plugin folders, absolute or relative to the working directory; duplicates count once
 * @param builtIn plugins that the user's plugins of the same kind and name replace
 */
export async function loadPlugins(
  folders: readonly string[],
  builtIn: readonly BuiltInPlugin[] = [],
): Promise<LoadedPlugins> {
  const roots = [...new Set(folders.map(realFolder))];
  const found = roots.map(discover);
  const files = found.flatMap((discovery) => discovery.files);
  await prepareResolution(files.map(({ file }) => file));
  guardExit(roots);
  const loaded = await Promise.all(files.map(load));
  const { entries: own, clashes } = register(loaded);
  const taken = new Set(own.map(registryKey));
  const kept = builtIn.filter((plugin) => !taken.has(registryKey(plugin)));
  const entries = [...kept.map((plugin) => ({ ...plugin, file: "" })), ...own];
  const known = new Set(builtIn.map(registryKey));
  const problems = [...found, ...loaded, { problems: clashes }].flatMap((part) => part.problems);
  return {
    registry: new Registry(entries, roots),
    problems: problems.sort((left, right) => (left.file < right.file ? -1 : 1)),
    notices: own.flatMap(schemaNotices),
    replaced: own.filter((entry) => known.has(registryKey(entry))),
  };
}

const GUARDED = new Set<string>();

/** From now on `process.exit` in a plugin of these folders throws, so that the service does not end without a word. */
function guardExit(folders: readonly string[]): void {
  const { exit } = process;
  if (GUARDED.size === 0)
    process.exit = (code) => {
      const error = new Error("process.exit ends the whole service: throw an error instead");
      const frames = error.stack!.split("\n");
      for (const folder of GUARDED) if (frames.some((frame) => isIn(folder, frame))) throw error;
      return exit.call(process, code);
    };
  for (const folder of folders) GUARDED.add(`${folder}/`);
}

/** Packages below a folder are not its plugins: this service may be one of them. */
const isIn = (folder: string, frame: string): boolean => frame.split(folder)[1]?.includes("/node_modules/") === false;

interface Loaded {
  entry: RegistryEntry | null;
  problems: PluginProblem[];
}

async function load({ kind, file, stem }: PluginFile): Promise<Loaded> {
  const failed = (phase: PluginPhase, causes: readonly string[]): Loaded => ({
    entry: null,
    problems: causes.map((cause) => ({ file, phase, cause })),
  });
  let namespace: Record<string, unknown>;
  try {
    namespace = await inTime(IMPORT_TIMEOUT_MS, import(pathToFileURL(file).href));
  } catch (error) {
    return failed("import", [describeImportFailure(error, file)]);
  }
  const { plugin, problems } = checkShape(namespace, kind);
  if (plugin === null) return failed("shape", problems);
  const name = plugin.name ?? stem;
  if (!NAME.test(name))
    return failed("shape", [`"${name}" cannot be a name: rename the file, or give the plugin a name`]);
  const schemas = configSchemaProblems(plugin);
  if (schemas.length > 0) return failed("config", schemas);
  return { entry: { kind, name, file, plugin }, problems: [] };
}

/** A cheap check at every start; compiling the schema (`configure`) finds other problems, such as a `$ref` without a target. */
function configSchemaProblems(plugin: Plugin): string[] {
  const schema = "config" in plugin ? plugin.config : undefined;
  return schema === undefined ? [] : pluginSchemaProblems(schema, "config");
}

/** The fields of plugins that are schemas. */
const SCHEMA_FIELDS = ["config", "parameters", "query", "body", "response"];

function schemaNotices({ file, plugin }: RegistryEntry): PluginProblem[] {
  return SCHEMA_FIELDS.flatMap((field) =>
    keywordNotices((plugin as unknown as Record<string, unknown>)[field]).map(({ path, message }) => ({
      file,
      phase: field === "config" ? "config" : "shape",
      cause: `${formatPath([field, ...path])} ${message}`,
    })),
  );
}

/** Registers plugins. Names are unique within a kind, over all folders. */
function register(loaded: readonly Loaded[]): { entries: RegistryEntry[]; clashes: PluginProblem[] } {
  const entries = new Map<string, RegistryEntry>();
  const clashes: PluginProblem[] = [];
  for (const { entry } of loaded) {
    if (entry === null) continue;
    const key = registryKey(entry);
    const first = entries.get(key);
    if (first === undefined) entries.set(key, entry);
    else {
      const cause = `the ${entry.kind} name "${entry.name}" is taken by ${shortPath(first.file)}: rename one of them`;
      clashes.push({ file: entry.file, phase: "shape", cause });
    }
  }
  return { entries: [...entries.values()], clashes };
}
