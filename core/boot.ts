/**
 * Boot as a compiler: read, load plugins, check references, compile. Every stage reports all that it finds, and nothing
 * listens until there is nothing to report (design.md, "BOOT").
 */
import { basename, dirname, parse, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import type { Logger } from "pino";
import { compileAgents } from "./agents/compile.ts";
import { createModels } from "./agents/models.ts";
import { customRoute } from "./api/custom.ts";
import { ROUTES } from "./api/index.ts";
import { idlePatterns } from "./cors-settings.ts";
import { messageOf } from "./errors.ts";
import type { Route } from "./http/route.ts";
import { createSchemaCompiler } from "./json-schema.ts";
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
import { createService, type Service } from "./service.ts";
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

interface Problem {
  path: readonly (string | number)[];
  message: string;
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
  const issues = [...loaded.issues];
  const { manifest, folder } = loaded;

  const folders = [
    ...(manifest?.plugins ?? []).map((path) => resolve(folder, path)),
    ...options.plugins.map((path) => resolve(path)),
  ];
  const { registry, problems } = await loadPlugins(folders, { builtIn: BUILT_IN });
  for (const problem of problems) issues.push(pluginIssue(problem));
  issues.push(...checkReferences(loaded, knownPlugins(registry, problems)));
  if (manifest === null) return { loaded, registry, service: null, issues: sortIssues(issues), host };

  const at = (list: readonly Problem[]) => {
    for (const { path, message } of list) issues.push(loaded.issueAt(path, message));
  };
  const { tools, problems: toolProblems } = compileTools(manifest, registry, host);
  at(toolProblems);
  const { models, problems: modelProblems } = await createModels(manifest, registry, host, { folder });
  at(modelProblems);
  const routes = [...ROUTES, ...customRoutes(manifest, registry, at)];
  for (const pattern of idlePatterns(manifest.server, routes))
    issues.push(loaded.issueAt(["server", "corsRoutes", pattern], "no route of this version matches", "warning"));
  const { agents, problems: agentProblems } = compileAgents(manifest, { tools, models });
  at(agentProblems);
  if (hasErrors(issues)) return { loaded, registry, service: null, issues: sortIssues(issues), host };

  const service = createService({ manifest, agents, tools, routes });
  return { loaded, registry, service, issues: sortIssues(issues), host };
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

function customRoutes(manifest: Manifest, registry: Registry, report: (problems: Problem[]) => void): Route<Service>[] {
  const compiler = createSchemaCompiler();
  const rows: Route<Service>[] = [];
  const taken = new Set(ROUTES.map(shapeOf));
  for (const [index, { use }] of manifest.routes.entries()) {
    const plugin = registry.get("route", use);
    if (plugin === undefined) continue;
    try {
      const row = customRoute(use, plugin, compiler);
      if (taken.has(shapeOf(row)))
        report([{ path: ["routes", index, "use"], message: `${row.method} ${row.path} is taken by another route` }]);
      taken.add(shapeOf(row));
      rows.push(row);
    } catch (error) {
      report([{ path: ["routes", index, "use"], message: `route plugin "${use}": ${messageOf(error)}` }]);
    }
  }
  return rows;
}

/** Two routes of one shape would shadow each other, whatever their parameters are called. */
const shapeOf = ({ method, path }: { method: string; path: string }) => `${method} ${path.replace(/:[^/]+/g, ":")}`;

/** Placed where the cause says, which is how the loader words it for people. */
function pluginIssue({ file, phase, cause }: PluginProblem): Issue {
  const [, line = "1", column = "1"] = /\bline (\d+)(?:, column (\d+))?/.exec(cause) ?? [];
  const place = { line: Number(line), column: Number(column) };
  return { severity: "error", file: shortPath(file), ...place, path: phase, message: cause };
}
