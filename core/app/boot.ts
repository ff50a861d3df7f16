/**
 * Boot as a compiler: read, load plugins, check references, compile. Every stage reports all that it finds, and nothing
 * listens until there is nothing to report (design.md, "BOOT").
 */
import type { Logger } from "pino";
import { A2a } from "../a2a/a2a.ts";
import { compileAgents } from "../agents/compile.ts";
import { metersOf } from "../agents/meters.ts";
import { customRoutes } from "../api/custom/routes.ts";
import { customSockets } from "../api/custom/sockets.ts";
import { ROUTES } from "../api/routes/index.ts";
import { SOCKETS } from "../api/sockets/index.ts";
import { compileAccess } from "../auth/classes.ts";
import { keysIn } from "../auth/credentials.ts";
import { accessProblems } from "../auth/notices.ts";
import { openVerifier } from "../auth/provider.ts";
import type { Verifier } from "../auth/provider-port.ts";
import { messageOf } from "../lib/errors.ts";
import { createSchemaCompiler } from "../lib/json-schema.ts";
import { PROJECT } from "../lib/version.ts";
import { hasErrors, type Issue, sortIssues } from "../manifest/issues.ts";
import { type LoadedManifest, loadManifest } from "../manifest/load.ts";
import type { Manifest } from "../manifest/manifest.ts";
import { checkReferences } from "../manifest/references.ts";
import { createMcpServers } from "../mcp/servers.ts";
import { ToolDirectory } from "../mcp/tool-directory.ts";
import { createMemories } from "../memory/memories.ts";
import type { Memory } from "../memory/memory.ts";
import { type OpenedSemantics, openSemantics } from "../memory/semantic/open.ts";
import { BUILT_IN_PLUGINS } from "../models/builtin.ts";
import { createModels, type Models } from "../models/models.ts";
import { LogRing } from "../observability/log-ring.ts";
import type { LogText } from "../observability/log-text.ts";
import { MetricsPage } from "../observability/metrics/page.ts";
import { openOtlp } from "../observability/otlp/open.ts";
import { createTracer, type Tracer } from "../observability/tracer.ts";
import { Platform } from "../platform/platform.ts";
import { pluginFolders } from "../registry/discover.ts";
import { createHost, type OwnedHost } from "../registry/host.ts";
import { loadPlugins } from "../registry/load.ts";
import type { Registry } from "../registry/registry.ts";
import { knownPlugins, pluginIssue, replacementIssue } from "../registry/report.ts";
import { createNamespaces } from "../storage/keyv-namespace.ts";
import { MeasuredStore } from "../storage/measured-store.ts";
import { createMemoryStore } from "../storage/memory-store.ts";
import { openStore, parseSqliteUrl } from "../storage/open-store.ts";
import type { Store } from "../storage/store.ts";
import { compileTools } from "../tools/compile.ts";
import { openTraces } from "../traces/open.ts";
import { openWorkflows } from "../workflows/open.ts";
import { idlePatterns } from "./cors.ts";
import { createService, type Service, type ServiceParts } from "./service.ts";

export interface BootOptions {
  config: string;
  /** Folders of plugins beside the built-in one and those that the manifest names. */
  plugins: readonly string[];
  env: Readonly<Record<string, string | undefined>>;
  logger: Logger;
  /** Told what the lines of `logger` must not show, as soon as that is known. */
  text?: LogText;
  /** What keeps the lines of `logger`; default: nothing does. */
  ring?: LogRing;
  /** Open the manifest's store, once nothing else is wrong. Default: no, so that commands which only look leave no file. */
  store?: boolean;
  /** The folder of the package.json whose packages are looked after; default: Penstock's own. */
  project?: string;
  /** False: leave the indexes of semantic search alone, whatever state they are in. */
  semantic?: boolean;
}

export interface Booted {
  loaded: LoadedManifest;
  registry: Registry;
  /** Null when `issues` holds an error. */
  service: Service | null;
  /** Sorted by place. Warnings do not stop the boot. */
  issues: Issue[];
  host: OwnedHost;
  /** Null when there is no manifest to speak of. */
  models: Models | null;
  /** What checks the tokens of users; null where no provider is named, and without authentication. */
  verifier: Verifier | null;
  /** Null where nothing is traced. */
  tracer: Tracer | null;
  /** What the service does before it listens. */
  begin(): Promise<void>;
  /** Waits for work that no request waits for, at most some milliseconds. */
  idle(patience: number): Promise<void>;
  /** Ends what was made, each before what it needs: history, plugins, store. A second call does nothing more. */
  close(): Promise<void>;
}

export async function boot(options: BootOptions): Promise<Booted> {
  const { logger, env } = options;
  const namespaces = createNamespaces();
  const host = createHost({ logger, env, keyv: namespaces.keyv });
  const loaded = await loadManifest(options.config, env);
  options.text?.hide(loaded.secrets);
  const { validSubset, folder } = loaded;
  const folders = [...pluginFolders(folder, validSubset?.plugins), ...options.plugins];
  const { registry, problems, replaced } = await loadPlugins(folders, BUILT_IN_PLUGINS);
  const issues = [
    ...loaded.issues,
    ...problems.map(pluginIssue),
    ...replaced.map(replacementIssue),
    ...checkReferences(loaded, knownPlugins(registry, problems)),
  ];
  // Of a manifest with errors the sound part is compiled all the same: what is wrong there belongs into this report.
  const compiled = validSubset === null ? null : await compile(validSubset, { loaded, registry, host, logger, issues }, options);
  if (compiled !== null) namespaces.keep(compiled.parts.store);
  const service = compiled === null || hasErrors(issues) ? null : createService(compiled.parts);
  const begin = async () => compiled?.begin();
  const idle = async (patience: number) => compiled?.idle(patience);
  const close = once(async () => {
    await compiled?.end();
    await compiled?.parts.metrics.close();
    await host.close();
    await compiled?.parts.store.close();
  });
  const { models = null, verifier = null, tracer = null } = compiled ?? {};
  return { loaded, registry, service, issues: sortIssues(issues), host, models, verifier, tracer, begin, idle, close };
}

function once(work: () => Promise<void>): () => Promise<void> {
  let done: Promise<void> | undefined;
  return () => {
    done ??= work();
    return done;
  };
}

interface Making {
  loaded: LoadedManifest;
  registry: Registry;
  host: OwnedHost;
  logger: Logger;
  /** Grows. */
  issues: Issue[];
}

interface Compiled {
  parts: ServiceParts;
  models: Models;
  verifier: Verifier | null;
  tracer: Tracer | null;
  /** Takes up what an earlier process left. */
  begin(): Promise<void>;
  idle(patience: number): Promise<void>;
  /** Nothing that was recorded is lost. */
  end(): Promise<void>;
}

async function compile(manifest: Manifest, making: Making, options: BootOptions): Promise<Compiled> {
  const { loaded, registry, host, logger, issues } = making;
  const { folder, variableOf } = loaded;
  const meters = metersOf(manifest);
  const { tools: declared, problems: inTools } = compileTools(manifest, registry, host, meters.tools);
  const tools = new ToolDirectory(declared, manifest, { folder, logger, meters: meters.tools });
  const modelsOptions = { folder, variableOf, meters: meters.models };
  const { models, problems: inModels } = await createModels(manifest, registry, host, modelsOptions);
  const { routes: custom, problems: inRoutes } = customRoutes(manifest, registry, ROUTES, SOCKETS);
  const routes = [...ROUTES, ...custom];
  const { sockets: own, problems: inSockets } = customSockets(manifest, registry, SOCKETS, routes);
  const sockets = [...SOCKETS, ...own];
  for (const { path, message } of [...inTools, ...inModels, ...inRoutes, ...inSockets])
    issues.push(loaded.issueAt(path, message));
  const { verifier, problems: inAuth } = await openVerifier(manifest, { registry, host, variableOf });
  for (const { path, message, severity } of inAuth) issues.push(loaded.issueAt(path, message, severity));
  const store = new MeasuredStore(await storeOf(manifest, making, options), meters);
  const traces = openTraces(manifest, store, logger, meters);
  const otlp = options.store && !hasErrors(issues) ? await openOtlp(manifest, options, meters) : null;
  const sinks = otlp === null ? [traces.sink] : [traces.sink, otlp.sink];
  const tracer = createTracer(
    { ...manifest.observability, secrets: [...loaded.secrets, ...keysIn(options.env)] },
    sinks,
  );
  const { memories, start } = await memoriesOf(manifest, store, models, making, options);
  const parts = { tools, models, memories, store, logger };
  const { agents, problems: inAgents, histories } = compileAgents(manifest, { ...parts, meters });
  for (const { path, message } of inAgents) issues.push(loaded.issueAt(path, message));
  const linked = {
    ...parts,
    agents,
    registry,
    schemas: createSchemaCompiler(),
    configs: createSchemaCompiler({ defaults: true }),
    env: options.env,
    folder,
    meters: meters.workflows,
    trace: tracer ?? undefined,
  };
  const workflows = await openWorkflows(manifest, loaded, linked);
  for (const { path, message } of workflows.problems) issues.push(loaded.issueAt(path, message));
  const everyPath = [...routes, ...sockets.map(({ path, group }) => ({ method: "WS" as const, path, group }))];
  for (const pattern of idlePatterns(manifest.server, everyPath))
    issues.push(loaded.issueAt(["server", "corsRoutes", pattern], "no route of this version matches", "warning"));
  const provided = verifier?.publicRoutes ?? [];
  const around = { routes: everyPath, provided, env: options.env, isWritten: loaded.isWritten };
  for (const { path, message, severity } of accessProblems(manifest.auth, around))
    issues.push(loaded.issueAt(path, message, severity));
  const access = compileAccess(manifest.auth, everyPath, provided);
  const a2a = new A2a(manifest, parts);
  const mcpServers = createMcpServers<Service>(manifest, tools);
  return {
    parts: {
      manifest,
      agents,
      tools,
      workflows: workflows.engine,
      mcpServers,
      a2a,
      traces,
      routes,
      sockets,
      access,
      store,
      memories,
      meters,
      metrics: new MetricsPage(meters),
      logs: options.ring ?? new LogRing(0),
      platform: new Platform({ ...host, folder, project: options.project ?? PROJECT, ...manifest.updates }),
    },
    models,
    verifier,
    tracer,
    async begin() {
      await histories.start();
      start();
      traces.start();
      tools.begin();
      await workflows.start();
      await a2a.start();
    },
    async idle(patience) {
      await Promise.all([workflows.idle(patience), a2a.idle(patience)]);
    },
    async end() {
      await a2a.close();
      await workflows.close();
      await histories.close();
      await Promise.all([traces.close(), otlp?.close()]);
      await tools.close();
    },
  };
}

interface OpenedMemories {
  memories: Map<string, Memory>;
  start: OpenedSemantics["start"];
}

async function memoriesOf(
  manifest: Manifest,
  store: Store,
  models: Models,
  { loaded, registry, host, issues }: Making,
  options: BootOptions,
): Promise<OpenedMemories> {
  try {
    if (options.semantic === false) return { memories: await createMemories(manifest, store), start: () => {} };
    const source = { store, registry, host, models, modelsFailed: hasErrors(issues) };
    const { semantics, problems, start } = await openSemantics(manifest, source);
    for (const { path, message, severity } of problems) issues.push(loaded.issueAt(path, message, severity));
    return { memories: await createMemories(manifest, store, { semantic: semantics }), start };
  } catch (error) {
    // Memories and indexes read what they left in the store.
    issues.push(loaded.issueAt(["store"], messageOf(error)));
    return { memories: new Map(), start: () => {} };
  }
}

/** The manifest's store; one in the process where it is not to be opened, so that everything else can be checked. */
async function storeOf(manifest: Manifest, making: Making, options: BootOptions): Promise<Store> {
  const { loaded, registry, host, logger, issues } = making;
  const { folder } = loaded;
  const url = manifest.store;
  try {
    if (options.store && !hasErrors(issues)) return await openStore(url, { logger, registry, host, folder });
    if (url.startsWith("sqlite:")) parseSqliteUrl(url, folder);
  } catch (error) {
    issues.push(loaded.issueAt(["store"], messageOf(error).replace(/^store: /, "")));
  }
  return createMemoryStore();
}
