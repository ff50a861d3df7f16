/** Custom routes: plugins of kind `route` as rows of the table. */
import type { Logger } from "pino";
import type { Schemas } from "../../../generated/types.ts";
import type { Service } from "../../app/service.ts";
import type { Validator } from "../../http/decode.ts";
import type { Context, Peer, Route, RouteOutput, SocketRoute } from "../../http/route.ts";
import { fillOpenEnd, hasOpenEnd } from "../../http/socket-router.ts";
import type { User } from "../../identity/principal.ts";
import { messageOf, type Problem } from "../../lib/errors.ts";
import { createSchemaCompiler, type SchemaCompiler } from "../../lib/json-schema.ts";
import { parseExactly } from "../../lib/large-integers.ts";
import { isThenable, promised } from "../../lib/thenable.ts";
import type { Manifest } from "../../manifest/manifest.ts";
import type { RoutePlugin, SocketPlugin } from "../../plugin/plugin.ts";
import type { Registry } from "../../registry/registry.ts";
import { type PerformInput, perform } from "../routes/perform.ts";
import type {
  PluginSocketPeer,
  RouteAgents,
  RouteCall,
  RouteClient,
  RouteMemory,
  RouteTools,
  RouteWorkflows,
} from "./route-services.ts";

/* The `call` of a custom route. Whatever is behind a getter is created when it is read, so that routes pay only for what they use. */

export class CustomCall implements RouteCall {
  readonly #call: Context<Service>;
  readonly requestId: string;

  constructor(call: Context<Service>) {
    this.#call = call;
    this.requestId = call.requestId;
  }

  get signal(): AbortSignal {
    return this.#call.signal;
  }

  get logger(): Logger {
    return this.#call.logger;
  }

  get client(): RouteClient {
    const { address, scheme, host } = this.#call.client;
    return { address, scheme, host };
  }

  get agents(): RouteAgents {
    return agentCalls(this.#call);
  }

  get tools(): RouteTools {
    return toolCalls(this.#call);
  }

  get workflows(): RouteWorkflows {
    return workflowCalls(this.#call);
  }

  /** Returns an arrow function, so that routes may destructure the call. */
  get memory(): (name?: string) => RouteMemory {
    return (name) => memoryCalls(this.#call, name);
  }
}

const agentCalls = (call: Context<Service>): RouteAgents => ({
  list: () => perform<"AgentList">(call, "agents.list"),
  get: (id) => perform<"AgentDetail">(call, "agents.get", { params: { id } }),
  generateText: (id, body) => perform<"TextResult">(call, "agents.generateText", { params: { id }, body }),
  generateObject: (id, body) => perform<"GeneratedObject">(call, "agents.generateObject", { params: { id }, body }),
  history: (id, query) => perform<"HistoryPage">(call, "agents.history", { params: { id }, query }),
});

const toolCalls = (call: Context<Service>): RouteTools => ({
  list: () => perform<"ToolList">(call, "tools.list"),
  async execute(name, input, options) {
    const body = { input, context: options?.context };
    return (await perform<"ToolExecutionResult">(call, "tools.execute", { params: { name }, body })).result;
  },
});

const workflowCalls = (call: Context<Service>): RouteWorkflows => ({
  list: () => perform<"WorkflowList">(call, "workflows.list"),
  get: (id) => perform<"WorkflowDetail">(call, "workflows.get", { params: { id } }),
  executions: (query) => perform<"WorkflowExecutionList">(call, "workflows.listExecutions", { query }),
  execute: (id, body) => perform<"ExecutionResult">(call, "workflows.execute", { params: { id }, body }),
  suspend: (id, executionId, reason, query) =>
    perform<"ExecutionSuspended">(call, "workflows.suspend", { params: { id, executionId }, query, body: { reason } }),
  resume: (id, executionId, body = {}, query) =>
    perform<"ExecutionResult">(call, "workflows.resume", { params: { id, executionId }, query, body }),
  replay: (id, executionId, body, query) =>
    perform<"ExecutionResult">(call, "workflows.replay", { params: { id, executionId }, query, body }),
  cancel: (id, executionId, reason, query) =>
    perform<"ExecutionCancellation">(call, "workflows.cancel", {
      params: { id, executionId },
      query,
      body: { reason },
    }),
  state: (id, executionId, query) =>
    perform<"ExecutionState">(call, "workflows.getState", { params: { id, executionId }, query }),
});

/** The memory of that name. Query and body may come from a client and must not choose another one. */
function memoryCalls(call: Context<Service>, name: string | undefined): RouteMemory {
  const ask = <K extends keyof Schemas>(operation: string, { params, query, body }: PerformInput) =>
    perform<K>(call, operation, {
      ...(params !== undefined && { params }),
      query: { ...query, agentId: name },
      ...(typeof body === "object" && body !== null && { body: { ...body, agentId: undefined } }),
    });
  return {
    conversations: (query) => ask<"ConversationList">("memory.listConversations", { query }),
    create: async (body = {}) => (await ask<"ConversationReply">("memory.createConversation", { body })).conversation,
    get: async (conversationId, query) =>
      (await ask<"ConversationReply">("memory.getConversation", { params: { conversationId }, query })).conversation,
    update: async (conversationId, body, query) =>
      (await ask<"ConversationReply">("memory.updateConversation", { params: { conversationId }, query, body }))
        .conversation,
    delete: async (conversationId, query) =>
      void (await ask("memory.deleteConversation", { params: { conversationId }, query })),
    clone: (conversationId, body = {}, query) =>
      ask<"ClonedConversation">("memory.cloneConversation", { params: { conversationId }, query, body }),
    messages: (conversationId, query) =>
      ask<"MessageList">("memory.listMessages", { params: { conversationId }, query }),
    save: async (body) => (await ask<"SavedMessages">("memory.saveMessages", { body })).saved,
    deleteMessages: async (body) => (await ask<"DeletedMessages">("memory.deleteMessages", { body })).deleted,
    search: (searchQuery, query) => ask<"SearchResults">("memory.search", { query: { ...query, searchQuery } }),
    workingMemory: (conversationId, query) =>
      ask<"WorkingMemory">("memory.getWorkingMemory", { params: { conversationId }, query }),
    updateWorkingMemory: async (conversationId, body) =>
      void (await ask("memory.updateWorkingMemory", { params: { conversationId }, body })),
  };
}

/* Finds conflicting routes. The router prefers a literal segment to a parameter, from left to right. */

interface Routed {
  readonly method: string;
  readonly path: string;
}

/** Two routes with the same shape match the same requests, whatever the names of their parameters. */
export const requestShape = ({ method, path }: Routed): string =>
  `${method} ${segmentsOf(path)
    .map((segment) => (isParameter(segment) ? ":" : segment))
    .join("/")}`;

/**
 * Whether `added` hides paths of `route`, for every method: `/agents/me` is also a path of `/agents/:id`, and the router
 * considers only the methods of the more specific route.
 */
function shadowsRoute(added: Routed, route: Routed): boolean {
  const wanted = segmentsOf(added.path);
  const others = segmentsOf(route.path);
  if (wanted.length !== others.length) return false;
  const overlap = wanted.every((segment, index) => {
    const other = others[index]!;
    return segment === other || isParameter(segment) || isParameter(other);
  });
  if (!overlap) return false;
  const first = wanted.findIndex((segment, index) => isParameter(segment) !== isParameter(others[index]!));
  // A parameter is never empty.
  return (
    first !== -1 &&
    !isParameter(wanted[first]!) &&
    !others.some((other, index) => isParameter(other) && wanted[index] === "")
  );
}

const segmentsOf = (path: string): string[] => path.slice(1).split("/");
const isParameter = (segment: string): boolean => segment.startsWith(":");

const ANYTHING: Validator = () => true;
const WITH_BODY = new Set(["POST", "PUT", "PATCH"]);

/**
 * The rows that the manifest's `routes` name. None may have the method and path shape of another, the path shape of one of
 * `sockets`, or hide one of `taken`, which take precedence.
 */
export function customRoutes(
  manifest: Pick<Manifest, "routes">,
  registry: Registry,
  taken: readonly Route<Service>[],
  sockets: readonly { readonly path: string }[] = [],
): { routes: Route<Service>[]; problems: Problem[] } {
  const compiler = createSchemaCompiler();
  const shapes = new Set(taken.map(requestShape));
  const routes: Route<Service>[] = [];
  const problems: Problem[] = [];
  for (const [index, { use }] of manifest.routes.entries()) {
    const plugin = registry.get("route", use);
    if (plugin === undefined) continue;
    const report = (message: string) => problems.push({ path: ["routes", index, "use"], message });
    try {
      const row = customRoute(use, plugin, compiler);
      const hidden = taken.find((route) => shadowsRoute(row, route));
      if (shapes.has(requestShape(row))) report(`${row.method} ${row.path} is taken by another route`);
      else if (sockets.some(({ path }) => requestShape({ method: row.method, path }) === requestShape(row)))
        report(`${row.path} is taken by a socket`);
      else if (hidden !== undefined)
        report(
          `${row.method} ${row.path} would hide ${hidden.method} ${hidden.path}: choose a path that it does not match`,
        );
      shapes.add(requestShape(row));
      routes.push(row);
    } catch (error) {
      report(`route plugin "${use}": ${messageOf(error)}`);
    }
  }
  return { routes, problems };
}

/** Throws when a schema of the plugin does not compile. */
function customRoute(name: string, plugin: RoutePlugin, compiler: SchemaCompiler): Route<Service> {
  const query = plugin.query === undefined ? ANYTHING : (compiler.compile(plugin.query) as Validator);
  const body = plugin.body === undefined ? ANYTHING : (compiler.compile(plugin.body) as Validator);
  const takesBody = WITH_BODY.has(plugin.method);
  return {
    operation: `custom.${name}`,
    method: plugin.method,
    path: plugin.path,
    group: "custom",
    summary: plugin.summary ?? name,
    output: { json: "CustomResult" } as RouteOutput,
    checks: takesBody ? { query, body } : { query },
    schemas: { query: plugin.query, body: plugin.body, response: plugin.response },
    bodyOptional: plugin.body === undefined,
    cors: plugin.cors,
    readsHeaders: true,
    handle(input, call: Context<Service>) {
      const {
        params,
        query: parsed,
        body: given,
      } = input as unknown as { params: Record<string, string>; query: object; body: unknown };
      const { headers } = call;
      const user = ownUser(call.user);
      return promised(plugin.handle({ params, query: parsed, body: given, user, headers }, new CustomCall(call)));
    },
  };
}

/** A copy of the user for the route, whose changes must not affect the request. Users of cached tokens are frozen instead. */
const ownUser = (user: User | null): User | null => (Object.isFrozen(user) ? user : { ...user });

// Custom sockets: plugins of kind `socket` as rows of the sockets table.

const WS = "WS";

/**
 * The sockets that the manifest's `routes` name. None may have the path shape of another one of `taken`, nor that of a route,
 * whose GET would be found in its place.
 */
export function customSockets(
  manifest: Pick<Manifest, "routes">,
  registry: Registry,
  taken: readonly SocketRoute<Service>[],
  routes: readonly { readonly path: string }[],
): { sockets: SocketRoute<Service>[]; problems: Problem[] } {
  const shapes = new Set([...taken, ...routes].map(({ path }) => requestShape({ method: WS, path })));
  const sockets: SocketRoute<Service>[] = [];
  const problems: Problem[] = [];
  for (const [index, { use }] of manifest.routes.entries()) {
    const plugin = registry.get("socket", use);
    if (plugin === undefined) continue;
    const shape = requestShape({ method: WS, path: plugin.path });
    const problem = pathProblem(plugin.path) ?? (shapes.has(shape) ? "is taken by another socket or route" : null);
    shapes.add(shape);
    if (problem === null) sockets.push(customSocket(use, plugin));
    else problems.push({ path: ["routes", index, "use"], message: `WS ${plugin.path} ${problem}` });
  }
  return { sockets, problems };
}

function pathProblem(path: string): string | null {
  const base = hasOpenEnd(path) ? fillOpenEnd(path, 0) : path;
  return base.includes("*") ? "has a * that means nothing: ** may stand as its last segment only" : null;
}

function customSocket(name: string, plugin: SocketPlugin): SocketRoute<Service> {
  return {
    operation: `custom.${name}`,
    path: plugin.path,
    group: "custom",
    summary: plugin.summary ?? name,
    open(peer, service) {
      const own = new CustomPeer(peer, service);
      return {
        ready: awaited(plugin.open?.(own)),
        message: plugin.message && ((text) => awaited(plugin.message!(own, jsonOrText(text)))),
        close: plugin.close && (() => awaited(plugin.close!(own))),
      };
    },
  };
}

/** Reduces the return value of a plugin's handler to its completion. */
const awaited = (given: unknown): Promise<void> | undefined =>
  isThenable(given) ? (Promise.resolve(given) as Promise<void>) : undefined;

function jsonOrText(text: string): unknown {
  try {
    return parseExactly(text);
  } catch {
    return text;
  }
}

class CustomPeer implements PluginSocketPeer {
  readonly #peer: Peer;
  readonly #service: Service;
  readonly user: User | null;

  constructor(peer: Peer, service: Service) {
    this.#peer = peer;
    this.#service = service;
    this.user = ownUser(peer.user);
  }

  get params(): Readonly<Record<string, string>> {
    return this.#peer.params;
  }

  get query(): Readonly<Record<string, string>> {
    return this.#peer.query;
  }

  get logger(): Logger {
    return this.#peer.logger;
  }

  get signal(): AbortSignal {
    return this.#peer.signal;
  }

  get closed(): boolean {
    return this.#peer.closed;
  }

  get call(): RouteCall {
    const { user, caller, requestId, client, signal, logger } = this.#peer;
    return new CustomCall({ service: this.#service, user, caller, requestId, client, signal, logger, headers: {} });
  }

  send(data: unknown): boolean {
    const text: string | undefined = JSON.stringify(data);
    if (text === undefined) throw new TypeError(`send: ${typeof data} is not JSON`);
    return this.#peer.send(text);
  }

  close(code?: number, reason?: string): void {
    this.#peer.close(code, reason);
  }
}
