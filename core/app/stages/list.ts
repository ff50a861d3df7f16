/**
 * The stages of boot, in order. They are compiled and started from first to last, and end in reverse order: runs end, what they
 * recorded is written, plugins are closed, and the store last.
 *
 * A reload makes the next generation of the service beside the current one: kept stages stay as they are, all others are made anew.
 */
import { sep } from "node:path";
import { A2a } from "../../a2a/a2a.ts";
import { compileAgents } from "../../agents/compile.ts";
import { openTurns } from "../../agents/conversation/turn-queue.ts";
import { openHistories } from "../../agents/history/open.ts";
import { createMeters, meteredNames } from "../../agents/meters.ts";
import { customRoutes, customSockets } from "../../api/custom/routes.ts";
import { ROUTES } from "../../api/routes/index.ts";
import { OPENAI_ROUTES } from "../../api/routes/openai.ts";
import { RESPONSES_SOCKET, SOCKETS } from "../../api/sockets/index.ts";
import { logFeed } from "../../api/sockets/log-news.ts";
import { accessProblems, compileAccess } from "../../auth/classes.ts";
import { openVerifier } from "../../auth/provider.ts";
import { compilePattern } from "../../http/pattern.ts";
import { CommitConflict, messageOf, type Problem } from "../../lib/errors.ts";
import { createSchemaCompiler } from "../../lib/json-schema.ts";
import { PROJECT } from "../../lib/version.ts";
import { ListChanges } from "../../mcp/list-changes.ts";
import { createMcpServers } from "../../mcp/servers.ts";
import { LogRing } from "../../observability/log-line.ts";
import type { Meters } from "../../observability/metrics/meters.ts";
import { MetricsPage } from "../../observability/metrics/page.ts";
import { openOtlp } from "../../observability/otlp/open.ts";
import { createTracer } from "../../observability/tracer.ts";
import { Responses } from "../../openai/responses.ts";
import { Platform } from "../../platform/platform.ts";
import { KeptRuns } from "../../runs/kept-runs.ts";
import { KeptReplies } from "../../storage/kept-replies.ts";
import { Membership } from "../../storage/membership.ts";
import { createMemoryStore } from "../../storage/memory-store.ts";
import { openStore, parseSqliteUrl } from "../../storage/open-store.ts";
import { isPostgresUrl, parsePostgresUrl } from "../../storage/postgres-settings.ts";
import { isShared, type Store } from "../../storage/store.ts";
import { boundUsers } from "../../storage/stored-bytes.ts";
import { openTraces } from "../../traces/open.ts";
import { openWorkflows } from "../../workflows/open.ts";
import type { Service } from "../service.ts";
import { memories, memoryDomain } from "./memories.ts";
import type { Parts } from "./parts.ts";
import { fixedBy, kept, type Stage } from "./stage.ts";
import { approvalInbox, approvals, declaredTools, mcpClients, models, tools } from "./tools.ts";

/* Stages: the store of the manifest, and the storage of plugins. */

// Wraps a store to count and time its commits, without making anybody wait longer.

const measured = (store: Store, meters: Pick<Meters, "commits" | "commitDurations">): Store => ({
  ...store,
  commit(commit) {
    const started = performance.now();
    const committed = store.commit(commit);
    committed.then(
      () => {
        meters.commits.count("ok");
        meters.commitDurations.observe(performance.now() - started);
      },
      (error) => meters.commits.count(error instanceof CommitConflict ? "conflict" : "error"),
    );
    return committed;
  },
});

type StoreNeeds = "manifest" | "loaded" | "registry" | "host" | "meters" | "options";

const store: Stage<StoreNeeds, "store"> = async (parts, failed) => {
  const { store: opened, problems } = await openOrCheck(parts, failed);
  const { manifest, meters } = parts;
  const { store, bound } = await boundUsers(measured(opened, meters), () =>
    meters.limits.count("server.limits.stored"),
  );
  bound(manifest.server.limits.stored);
  return {
    parts: { store },
    problems,
    adopt: ({ manifest }) => ({ apply: () => bound(manifest.server.limits.stored) }),
    async end() {
      // Closed first, so that what plugins write while they close still finds the store open.
      await parts.host.close();
      await store.close();
    },
  };
};

/** Opens the manifest's store, or one in memory when it must not be opened, so that everything else can be checked. */
async function openOrCheck(
  { manifest: { store: url }, loaded: { folder }, registry, host, options }: Pick<Parts, StoreNeeds>,
  failed: boolean,
): Promise<{ store: Store; problems: Problem[] }> {
  const problems: Problem[] = [];
  try {
    if (isPostgresUrl(url)) parsePostgresUrl(url);
    if (options.store && !failed)
      return { store: await openStore(url, { logger: options.logger, registry, host, folder }), problems };
    if (url.startsWith("sqlite:")) parseSqliteUrl(url, folder);
  } catch (error) {
    problems.push({ path: ["store"], message: messageOf(error).replace(/^store: /, "") });
  }
  return { store: createMemoryStore(), problems };
}

/** The host of one generation's plugins, which are closed when all stages that use them have ended. */
const pluginHost: Stage<"host", never> = ({ host }) => ({ parts: {}, end: () => host.close() });

/** Starts before everything that leaves open work in the store, and ends after it. */
const membership: Stage<"store" | "options", "membership"> = ({ store, options: { logger } }) => {
  const membership = isShared(store) ? new Membership(store, { logger }) : null;
  return { parts: { membership }, begin: () => membership?.start(), end: () => membership?.release() };
};

const replies: Stage<"store" | "membership" | "options", "replies"> = ({ store, membership, options }) => {
  const replies = new KeptReplies(store, membership, options.logger);
  return { parts: { replies }, begin: () => replies.start(), end: () => replies.close() };
};

/** The last of all stages, so that no plugin waits for the store while it is created. */
const pluginStorage: Stage<"namespaces" | "store", never> = ({ namespaces, store }) => {
  namespaces.connect(store);
  return { parts: {} };
};

// Stage: the workflows, and the engine that runs them.

type WorkflowNeeds =
  | "manifest"
  | "loaded"
  | "store"
  | "membership"
  | "tools"
  | "agents"
  | "registry"
  | "meters"
  | "tracer"
  | "uses"
  | "options";

const workflows: Stage<WorkflowNeeds, "workflows" | "engine"> = async (parts) => {
  const { manifest, loaded, store, membership, options } = parts;
  const { limits } = parts.meters;
  const { engine, workflows, problems, start, idle, close, adopt } = await openWorkflows(manifest, loaded, {
    store,
    membership,
    logger: options.logger,
    refused: limits.count,
    ...linked(parts),
  });
  limits.measure("server.limits.executions", () => engine.live.size);
  return {
    parts: { workflows, engine },
    problems,
    begin: start,
    idle,
    end: close,
    adopt: (next) => adopt(next.manifest, next.loaded, linked(next)),
  };
};

/** The parts with which definitions are compiled. */
const linked = ({
  loaded,
  tools,
  agents,
  registry,
  meters,
  tracer,
  uses,
  options: { env },
}: Pick<Parts, WorkflowNeeds>) => ({
  tools,
  agents,
  registry,
  schemas: createSchemaCompiler(),
  env,
  folder: loaded.folder,
  meters: meters.workflows,
  trace: tracer ?? undefined,
  uses,
});

// Stages: the meters, the metrics page, and tracing.

const meters: Stage<"manifest", "meters"> = ({ manifest }) => {
  const meters = createMeters(manifest);
  return {
    parts: { meters },
    adopt({ manifest }) {
      // Declared before later stages use them. A name that is never counted does no harm.
      meters.declare(meteredNames(manifest));
      return {};
    },
  };
};

const metrics: Stage<"meters", "metrics"> = ({ meters }) => {
  const metrics = new MetricsPage(meters);
  return {
    parts: { metrics },
    adopt: () => ({ apply: () => metrics.renew() }),
    begin: () => metrics.activity.start(),
    end: () => metrics.close(),
  };
};

type TraceNeeds = "manifest" | "store" | "meters" | "options";

const traces: Stage<TraceNeeds, "traces"> = ({ manifest, store, meters, options }) => {
  const traces = openTraces(manifest, store, options.logger, meters);
  return { parts: { traces }, begin: () => traces.start(), end: () => traces.close() };
};

type TracerNeeds = "manifest" | "loaded" | "traces" | "meters" | "options";

const tracer: Stage<TracerNeeds, "tracer"> = async ({ manifest, loaded, traces, meters, options }, failed) => {
  const otlp = options.store && !failed ? await openOtlp(manifest, options, meters) : null;
  const sinks = otlp === null ? [traces.sink] : [traces.sink, otlp.sink];
  const tracer = createTracer({ ...manifest.observability, secrets: loaded.secrets }, sinks);
  return { parts: { tracer }, end: () => otlp?.close() };
};

// Stage: the agent runs that are kept. It precedes the recovery of executions, which needs their definitions.

type RunNeeds = "engine" | "agents" | "keepRuns" | "uses";

const runs: Stage<RunNeeds | "approvals", "runs"> = ({ engine, approvals, ...first }) => {
  const runs = new KeptRuns(engine, approvals);
  const adopt = ({ agents, keepRuns, uses }: Omit<Pick<Parts, RunNeeds>, "engine">) => {
    runs.adopt(
      [...agents.values()].map(({ kept }) => kept),
      uses,
    );
    keepRuns(runs);
  };
  adopt(first);
  return { parts: { runs }, adopt: (next) => ({ apply: () => adopt(next) }) };
};

// Stage: the rows of the API, built in and custom.

const routes: Stage<"manifest" | "registry", "routes" | "sockets" | "paths"> = ({ manifest, registry }) => {
  const builtIn = manifest.server.openai ? ROUTES : ROUTES.filter((row) => !OPENAI_ROUTES.includes(row));
  const ownSockets = manifest.server.openai ? SOCKETS : SOCKETS.filter((row) => row !== RESPONSES_SOCKET);
  const custom = customRoutes(manifest, registry, builtIn, ownSockets);
  const routes = [...builtIn, ...custom.routes];
  const customized = customSockets(manifest, registry, ownSockets, routes);
  const sockets = [...ownSockets, ...customized.sockets];
  const paths = [...routes, ...sockets.map(({ path, group }) => ({ method: "WS", path, group }))];
  const problems = [...custom.problems, ...customized.problems, ...unusedPatterns(manifest.server.corsRoutes, paths)];
  return { parts: { routes, sockets, paths }, problems };
};

/** Patterns of `server.corsRoutes` that no route matches. */
function unusedPatterns(corsRoutes: object, paths: Parts["paths"]): Problem[] {
  const unused = Object.keys(corsRoutes).filter((text) => {
    const pattern = compilePattern(text);
    return !paths.some(({ method, path }) => pattern.matches(method, path));
  });
  const message = "no route of this version matches";
  return unused.map((pattern) => ({ path: ["server", "corsRoutes", pattern], message, severity: "warning" }));
}

// Stages: agents over A2A and OpenAI's Responses, and the MCP servers of the manifest.

type TaskNeeds = "manifest" | "store" | "membership" | "agents" | "approvals" | "runs" | "engine" | "options";

const a2a: Stage<TaskNeeds | "meters", "a2a"> = ({ manifest, options: { logger }, meters, ...parts }) => {
  const a2a = new A2a(manifest, { ...parts, logger, refused: meters.limits.count });
  return {
    parts: { a2a },
    begin: () => a2a.start(),
    adopt: ({ agents }) => ({ apply: () => a2a.adopt(agents) }),
    end: () => a2a.close(),
  };
};

const responses: Stage<"manifest" | "store" | "runs" | "options", "responses"> = ({
  options: { logger },
  ...parts
}) => {
  const responses = new Responses(parts.manifest, { ...parts, logger });
  return {
    parts: { responses },
    begin: () => responses.start(),
    idle: (timeout) => responses.idle(timeout),
    end: () => responses.close(),
  };
};

const mcpServers: Stage<"manifest" | "tools", "mcpServers"> = ({ manifest, tools }) => ({
  parts: { mcpServers: createMcpServers<Service>(manifest, tools) },
});

const mcpLists: Stage<"tools" | "mcpServers", "mcpLists"> = (first) => {
  const mcpLists = new ListChanges();
  const use = ({ tools, mcpServers }: Pick<Parts, "tools" | "mcpServers">) => {
    tools.onChange(() => mcpLists.check());
    mcpLists.use(mcpServers);
  };
  use(first);
  return { parts: { mcpLists }, idle: async () => mcpLists.close(), adopt: (next) => ({ apply: () => use(next) }) };
};

// Stages: the newest lines of the log, and the package updates and environment file of the service.

const logs: Stage<"options", "logs" | "logNews"> = ({ options: { ring } }) => {
  const logs = ring ?? new LogRing(0);
  return { parts: { logs, logNews: logFeed(logs) } };
};

const platform: Stage<"manifest" | "host" | "loaded" | "options", "platform"> = ({
  manifest,
  host,
  loaded: { folder },
  // The folder with the package.json: that of the manifest if Penstock is installed as a package, else Penstock's own.
  options: { project = PROJECT.includes(`${sep}node_modules${sep}`) ? folder : PROJECT },
}) => {
  const source = {
    ...host,
    folder,
    project,
    get install() {
      return manifest.updates.install;
    },
  };
  return { parts: { platform: new Platform(source) } };
};

// Stages: the turns of conversations, the histories of agents, and the agents.

type LastingNeeds = "manifest" | "store" | "membership" | "options";

const turns: Stage<LastingNeeds, "turns"> = ({ manifest, options: { logger }, ...parts }) => {
  const turns = openTurns(manifest, { ...parts, logger });
  return { parts: { turns }, begin: turns.start, end: turns.close };
};

const histories: Stage<LastingNeeds, "histories"> = ({ manifest, options: { logger }, ...parts }) => {
  const histories = openHistories(manifest, { ...parts, logger });
  return { parts: { histories }, begin: () => histories.start(), end: () => histories.close() };
};

type AgentNeeds =
  | "manifest"
  | "tools"
  | "models"
  | "memories"
  | "turns"
  | "histories"
  | "store"
  | "meters"
  | "uses"
  | "options";

const agents: Stage<AgentNeeds, "agents" | "keepRuns"> = ({ manifest, options: { logger }, ...parts }) => {
  const { agents, problems, whenIdle, keepRuns } = compileAgents(manifest, { ...parts, logger });
  return { parts: { agents, keepRuns }, problems, end: whenIdle };
};

// Stages: the verifier of user tokens, and the access rules of all routes.

const verifier: Stage<"manifest" | "registry" | "host" | "loaded", "verifier"> = async ({
  manifest,
  registry,
  host,
  loaded: { variableOf },
}) => {
  const { verifier, problems } = await openVerifier(manifest, { registry, host, variableOf });
  return { parts: { verifier }, problems };
};

const access: Stage<"manifest" | "paths" | "verifier" | "loaded" | "options", "access"> = ({
  manifest: { auth },
  paths,
  verifier,
  loaded: { isWritten },
  options: { env },
}) => {
  const provided = verifier?.publicRoutes ?? [];
  const problems = accessProblems(auth, { routes: paths, provided, env, isWritten });
  return { parts: { access: compileAccess(auth, paths, provided) }, problems };
};

export const STAGES = [
  // The stages up to here find most problems and have no side effects: the store is opened only if they find none.
  kept(meters),
  kept(approvals),
  declaredTools,
  models,
  routes,
  verifier,
  kept(store, ["store"]),
  // From here on the store is open.
  pluginHost,
  kept(membership),
  kept(replies),
  kept(metrics),
  kept(mcpClients),
  tools,
  kept(traces),
  tracer,
  kept(memoryDomain, ["memory.*.semantic", "server.limits.vectors"]),
  memories,
  kept(turns),
  kept(histories),
  agents,
  kept(workflows),
  kept(runs),
  kept(approvalInbox),
  access,
  kept(a2a),
  kept(responses),
  mcpServers,
  kept(mcpLists),
  kept(logs),
  kept(platform),
  kept(pluginStorage),
] as const;

/** Settings that a reload cannot change: those of kept stages, and those of the listener, of loaded code, and of ownership in the store. */
export const FIXED_SETTINGS: readonly string[] = [
  "server.host",
  "server.port",
  "server.transport",
  "server.limits.socketMessage",
  "plugins",
  ...fixedBy(STAGES),
];
