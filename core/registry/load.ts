/** Loads the plugins of all folders: find, import, check, register. Every broken plugin is reported, and the others still load. */
import { pathToFileURL } from "node:url";
import { schemaProblems } from "../lib/schema-shape.ts";
import { formatPath } from "../manifest/issues.ts";
import { keywordNotices } from "../manifest/unknown-keywords.ts";
import type { Plugin, PluginKind } from "../plugin/plugin.ts";
import { discover, type PluginFile, realFolder } from "./discover.ts";
import { describeImportFailure } from "./import-failure.ts";
import { NAME } from "./kinds.ts";
import type { PluginPhase, PluginProblem } from "./problem.ts";
import { shortPath } from "./problem.ts";
import { Registry, type RegistryEntry, registryKey } from "./registry.ts";
import { prepareResolution } from "./resolution.ts";
import { checkShape } from "./shape.ts";

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
  const loaded = await Promise.all(files.map(load));
  const { entries: own, clashes } = register(loaded);
  const taken = new Set(own.map(({ kind, name }) => registryKey(kind, name)));
  const isTaken = ({ kind, name }: Pick<RegistryEntry, "kind" | "name">) => taken.has(registryKey(kind, name));
  const entries = [...builtIn.filter((plugin) => !isTaken(plugin)).map((plugin) => ({ ...plugin, file: "" })), ...own];
  const known = new Set(builtIn.map(({ kind, name }) => registryKey(kind, name)));
  const problems = [...found, ...loaded, { problems: clashes }].flatMap((part) => part.problems);
  return {
    registry: new Registry(entries, roots),
    problems: problems.sort((left, right) => (left.file < right.file ? -1 : 1)),
    notices: own.flatMap(schemaNotices),
    replaced: own.filter(({ kind, name }) => known.has(registryKey(kind, name))),
  };
}

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
    namespace = await withinLimit(import(pathToFileURL(file).href));
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

async function withinLimit<T>(imported: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const limit = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`still waiting after ${IMPORT_TIMEOUT_MS / 1000} s`)), IMPORT_TIMEOUT_MS);
  });
  try {
    return await Promise.race([imported, limit]);
  } finally {
    clearTimeout(timer);
  }
}

/** A cheap check at every start; compiling the schema (`configure`) finds other problems, such as a `$ref` without a target. */
function configSchemaProblems(plugin: Plugin): string[] {
  const schema = "config" in plugin ? plugin.config : undefined;
  return schema === undefined ? [] : schemaProblems(schema, "config");
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
    const key = registryKey(entry.kind, entry.name);
    const first = entries.get(key);
    if (first === undefined) entries.set(key, entry);
    else {
      const cause = `the ${entry.kind} name "${entry.name}" is taken by ${shortPath(first.file)}: rename one of them`;
      clashes.push({ file: entry.file, phase: "shape", cause });
    }
  }
  return { entries: [...entries.values()], clashes };
}
