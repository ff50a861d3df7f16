/**
 * Boot as a compiler: read, load plugins, check references, compile. Every stage reports all that it finds, and nothing
 * listens until there is nothing to report (design.md, "BOOT").
 */
import { basename, dirname, parse, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import type { Logger } from "pino";
import { compileAgents } from "./agents/compile.ts";
import { createModels } from "./agents/models.ts";
import { customRoutes } from "./api/custom.ts";
import { ROUTES } from "./api/index.ts";
import { idlePatterns } from "./cors-settings.ts";
import { hasErrors, type Issue, sortIssues } from "./manifest/issues.ts";
import { type LoadedManifest, loadManifest } from "./manifest/load.ts";
import type { Manifest } from "./manifest/manifest.ts";
import { checkReferences } from "./manifest/references.ts";
import type { PluginKind } from "./plugin.ts";
import { createHost, type OwnedHost } from "./registry/host.ts";
import { PLUGIN_KINDS } from "./registry/kinds.ts";
import { loadPlugins } from "./registry/load.ts";
import { type PluginProblem, shortPath } from "./registry/problem.ts";
import type { Registry } from "./registry/registry.ts";
import { createService, type Service, type ServiceParts } from "./service.ts";
import { compileTools } from "./tools/compile.ts";

/** The plugins that Penstock ships: beside `core/` in the source, beside the bundle in `dist/`. */
const BUILT_IN = fileURLToPath(new URL(import.meta.url.endsWith(".ts") ? "../plugins" : "./plugins", import.meta.url));

export interface BootOptions {
  config: string;
  /** Folders of plugins beside the built-in one and those that the manifest names. */
  plugins: readonly string[];
  env: Readonly<Record<string, string | undefined>>;
  logger: Logger;
}

export interface Booted {
  loaded: LoadedManifest;
  registry: Registry;
  /** Null when `issues` holds an error. */
  service: Service | null;
  /** Sorted by place. Warnings do not stop the boot. */
  issues: Issue[];
  host: OwnedHost;
}

export async function boot(options: BootOptions): Promise<Booted> {
  const host = createHost({ logger: options.logger, env: options.env });
  const loaded = await loadManifest(options.config, options.env);
  const { sound, folder } = loaded;
  const folders = [...(sound?.plugins ?? []).map((path) => resolve(folder, path)), ...options.plugins];
  const { registry, problems } = await loadPlugins(folders, { builtIn: BUILT_IN });
  const issues = [
    ...loaded.issues,
    ...problems.map(pluginIssue),
    ...checkReferences(loaded, knownPlugins(registry, problems)),
  ];
  // Of a manifest with errors the sound part is compiled all the same: what is wrong there belongs into this report.
  const parts = sound === null ? null : await compile(sound, loaded, registry, host, issues);
  const service = parts === null || hasErrors(issues) ? null : createService(parts);
  return { loaded, registry, service, issues: sortIssues(issues), host };
}

async function compile(
  manifest: Manifest,
  loaded: LoadedManifest,
  registry: Registry,
  host: OwnedHost,
  issues: Issue[],
): Promise<ServiceParts> {
  const { folder, variableOf } = loaded;
  const { tools, problems: inTools } = compileTools(manifest, registry, host);
  const { models, problems: inModels } = await createModels(manifest, registry, host, { folder, variableOf });
  const { agents, problems: inAgents } = compileAgents(manifest, { tools, models });
  const { routes: custom, problems: inRoutes } = customRoutes(manifest, registry, ROUTES);
  for (const { path, message } of [...inTools, ...inModels, ...inAgents, ...inRoutes])
    issues.push(loaded.issueAt(path, message));
  const routes = [...ROUTES, ...custom];
  for (const pattern of idlePatterns(manifest.server, routes))
    issues.push(loaded.issueAt(["server", "corsRoutes", pattern], "no route of this version matches", "warning"));
  return { manifest, agents, tools, routes };
}

/** Names by kind; those of files that failed too, whose failure is report enough. */
function knownPlugins(registry: Registry, problems: readonly PluginProblem[]): Record<PluginKind, readonly string[]> {
  const rows = PLUGIN_KINDS.map(({ kind, folder }) => {
    const failed = problems
      .filter(({ file }) => basename(dirname(file)) === folder)
      .map(({ file }) => parse(file).name);
    return [kind, [...registry.names(kind), ...failed]];
  });
  return Object.fromEntries(rows);
}

/** Placed where the cause says, which is how the loader words it for people. */
function pluginIssue({ file, phase, cause }: PluginProblem): Issue {
  const [, line = "1", column = "1"] = /\bline (\d+)(?:, column (\d+))?/.exec(cause) ?? [];
  const place = { line: Number(line), column: Number(column) };
  return { severity: "error", file: shortPath(file), ...place, path: phase, message: cause };
}
