/**
 * Boots a service from a manifest: reads the file, loads the plugins, checks the references, then runs the stages. All of them add
 * their problems to one report, and the service listens only if the report has no error.
 */
import { resolve } from "node:path";
import { hideFromErrors } from "../lib/secrets.ts";
import { type Issue, sortIssues } from "../manifest/issues.ts";
import { type LoadedManifest, loadManifest } from "../manifest/load.ts";
import { checkReferences } from "../manifest/references.ts";
import { BUILT_IN_PLUGINS } from "../models/builtin.ts";
import type { Models } from "../models/models.ts";
import { pluginFolders } from "../registry/discover.ts";
import { createHost } from "../registry/host.ts";
import { loadPlugins } from "../registry/load.ts";
import type { PluginProblem } from "../registry/problem.ts";
import type { Registry } from "../registry/registry.ts";
import { knownPlugins, pluginIssue, replacementIssue } from "../registry/report.ts";
import { digestSources } from "../registry/sources.ts";
import { createGenerations, type Generation, type Generations } from "./generation.ts";
import type { BootOptions } from "./stages/parts.ts";

/** The first generation of a service. */
export interface Booted extends Pick<Generation, "loaded" | "service" | "issues" | "host" | "verifier" | "tracer"> {
  registry: Registry;
  /** Digests of the source files of plugins at the time they were loaded. */
  code: ReadonlyMap<string, string>;
  /** Null when the manifest could not be read. */
  models: Models | null;
  /** Null when the manifest could not be read. */
  generations: Generations | null;
  generation: Generation | null;
  /** Runs what the service does before it listens. */
  begin(): Promise<void>;
  /** Waits for background work, at most some milliseconds. */
  idle(timeout: number): Promise<void>;
  /** Ends everything that was made, each part before the parts that it needs: history, plugins, store. May be called again. */
  close(): Promise<void>;
}

export async function boot(options: BootOptions): Promise<Booted> {
  const loaded = await loadManifest(options.config, options.env);
  options.text?.hide(loaded.secrets);
  hideFromErrors(loaded.secrets);
  const folders = [...pluginFolders(loaded.folder, loaded.validSubset?.plugins), ...options.plugins];
  // Computed before loading, so that no later change is missed. A command that does not serve is never reloaded.
  const code = options.store === true ? await digestSources(folders) : new Map<string, string>();
  const { registry, issues } = await loadAllPlugins(loaded, folders);
  const manifest = loaded.validSubset;
  if (manifest === null) return nothingToServe(options, { loaded, registry, code, issues: sortIssues(issues) });
  const generations = createGenerations(options, registry);
  const generation = await generations.next(loaded, manifest, issues);
  const { begin } = generation;
  const { idle, close } = generations;
  return { ...generation, registry, code, generations, generation, begin, idle, close };
}

/** Loads every plugin that can be loaded. Reports problems of the others, of the manifest, and of its references to plugins. */
async function loadAllPlugins(
  loaded: LoadedManifest,
  folders: readonly string[],
): Promise<{ registry: Registry; issues: Issue[] }> {
  const { registry, problems, notices, replaced } = await loadPlugins(folders, BUILT_IN_PLUGINS);
  const issues = [
    ...loaded.issues,
    ...problems.map((problem) => folderIssue(loaded, problem) ?? pluginIssue(problem)),
    ...notices.map((notice) => ({ ...pluginIssue(notice), severity: "warning" as const })),
    ...replaced.map(replacementIssue),
    ...checkReferences(loaded, knownPlugins(registry, problems)),
  ];
  return { registry, issues };
}

/** Places the problem of a plugin folder at the line of the manifest that names it. */
function folderIssue({ folder, validSubset, issueAt }: LoadedManifest, { file, cause }: PluginProblem): Issue | null {
  const index = validSubset?.plugins.findIndex((named) => resolve(folder, named) === file) ?? -1;
  return index === -1 ? null : issueAt(["plugins", index], cause);
}

/** The result for a file that cannot be read as a manifest: only its report. */
function nothingToServe(
  { logger, env }: BootOptions,
  found: Pick<Booted, "loaded" | "registry" | "code" | "issues">,
): Booted {
  const host = createHost({ logger, env });
  const nothing = { service: null, models: null, verifier: null, tracer: null, generations: null, generation: null };
  return { ...found, ...nothing, host, begin: async () => {}, idle: async () => {}, close: () => host.close() };
}
