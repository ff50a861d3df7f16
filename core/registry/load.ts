/** Loads the plugins of all folders: find, import, check, register. Every broken plugin is reported, and the others still load. */
import { pathToFileURL } from "node:url";
import { isObject } from "../lib/is-object.ts";
import { formatPath, suggest } from "../manifest/manifest.ts";
import { keywordNotices } from "../manifest/unknown-keywords.ts";
import type { Plugin, PluginKind } from "../plugin/plugin.ts";
import { discover, type PluginFile, realFolder } from "./discover.ts";
import { inTime } from "./host.ts";
import { describeImportFailure } from "./import-failure.ts";
import { fieldName, fieldProblems, isKind, kindRow, NAME } from "./kinds.ts";
import { pluginSchemaProblems } from "./plugin-schema.ts";
import { type PluginPhase, type PluginProblem, shortPath } from "./problem.ts";
import { Registry, type RegistryEntry, registryKey } from "./registry.ts";
import { prepareResolution } from "./resolution.ts";

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

const FOLDERS = new Set<string>();

/** From now on `process.exit` in a plugin of these folders throws, so that the service does not end without a word. */
function guardExit(folders: readonly string[]): void {
  const { exit } = process;
  if (FOLDERS.size === 0)
    process.exit = (code) => {
      const error = new Error("process.exit ends the whole service: throw an error instead");
      const frames = error.stack!.split("\n");
      for (const folder of FOLDERS) if (frames.some((frame) => isIn(folder, frame))) throw error;
      return exit.call(process, code);
    };
  for (const folder of folders) FOLDERS.add(`${folder}/`);
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
