/** Protocols between programs: agent cards and A2A, the Model Context Protocol, AG-UI. */

import type { InvokeMcpToolRequest, McpCallResult } from "../../../generated/types.ts";
import type { Card } from "../../a2a/cards.ts";
import { capabilitiesOf } from "../../ag-ui/capabilities.ts";
import { answerAgUi, keepsState } from "../../ag-ui/endpoint.ts";
import type { Service } from "../../app/service.ts";
import { JSON_TYPE } from "../../http/encode.ts";
import type { Context, Method, PageReply, RawReply, Route } from "../../http/route.ts";
import { notFound, quoted } from "../../lib/errors.ts";
import { Serialized } from "../../lib/serialized.ts";
import type { Exposed } from "../../mcp/exposed.ts";
import { parseError } from "../../mcp/rpc.ts";
import type { McpServer } from "../../mcp/servers.ts";
import { findAgent, GENERATION } from "./agents.ts";
import { perform } from "./perform.ts";
import { get, post, rpcErrors, show } from "./row.ts";

/** How long a card may be cached: it changes only with the manifest. */
const CARD_MAX_AGE_SECONDS = 300;

/** Keys are public, and the same for everybody. */
const KEYS_HEADERS = ["cache-control", `public, max-age=${CARD_MAX_AGE_SECONDS}`];

/** Clients of 0.3 say no version: they find its fields beside. */
function findCard({ service, client, headers }: Context<Service>, id: string): Card {
  const isDual = !/^\s*1\./.test(headers["a2a-version"] ?? "");
  return service.cardOf(findAgent(service, id).id, isDual, service.originFor(client))!;
}

/** A card, which only the client may cache: discovery may need a key, so shared caches must not keep it. */
function cardPage(call: Context<Service>, id: string): PageReply {
  const known = call.headers["if-none-match"];
  const { json, tag } = findCard(call, id);
  const caching = ["cache-control", `private, max-age=${CARD_MAX_AGE_SECONDS}`, "vary", "a2a-version"];
  const headers = ["etag", tag, ...caching];
  const same = known?.split(",").some((each) => each.trim().replace(/^W\//, "") === tag) ?? false;
  return same ? { status: 304, body: "", headers } : { body: json, headers };
}

/** The reply to a body that is not JSON: an error of JSON-RPC 2.0. */
const malformed = (message: string): RawReply => ({
  status: 200,
  headers: ["content-type", JSON_TYPE],
  body: JSON.stringify({ jsonrpc: "2.0", id: null, error: { code: -32700, message } }),
});

const BARE = { group: "discovery", readsHeaders: true, output: { bare: "AgentCard", type: JSON_TYPE } } as const;

const bareCard = (path: string, operation: string, summary: string) =>
  get(path, operation, summary, { ...BARE, handle: ({ params }, call) => cardPage(call, params.id!) });

export const A2A_ROUTES = [
  show("/agents/:id/card", "a2a.card", "The A2A card of an agent", {
    output: "AgentCard",
    readsHeaders: true,
    handle: ({ params }, call) => new Serialized(findCard(call, params.id!).json),
  }),
  get("/.well-known/agent-card.json", "a2a.firstCard", "The A2A card of the first agent", {
    ...BARE,
    description: "Where A2A clients look for it: the card alone, without an envelope.",
    failures: ["not_found"],
    handle(_input, call) {
      const first = call.service.agents.keys().next().value;
      if (first === undefined) throw notFound("the manifest has no agents");
      return cardPage(call, first);
    },
  }),
  bareCard("/.well-known/:id/agent-card.json", "a2a.knownCard", "The A2A card of an agent, without an envelope"),
  bareCard("/a2a/:id/.well-known/agent-card.json", "a2a.ownCard", "The A2A card of an agent, below its own address"),
  show("/.well-known/jwks.json", "a2a.keys", "The keys that sign push notifications", {
    description:
      "Receivers of A2A push notifications check signatures with them. Always public. 404 unless `server.push.enabled`.",
    failures: ["not_found"],
    output: { bare: "SigningKeys", type: JSON_TYPE },
    async handle(_input, { service }) {
      const { pushes } = service.a2a;
      if (!pushes.isEnabled) throw notFound("push notifications are not enabled");
      return { body: JSON.stringify(await pushes.publicKeys()), headers: KEYS_HEADERS };
    },
  }),
  post("/a2a/:id", "a2a.call", "Call an agent over A2A", {
    description:
      "JSON-RPC of A2A 1.0, and of 0.3 without the header `A2A-Version`. Replies and errors are those of JSON-RPC, with status 200; methods that stream reply with server-sent events.",
    body: "PeerRequest",
    // Not validated here: every problem of the body is reported as a JSON-RPC error.
    checks: { body: () => true },
    readsHeaders: true,
    output: { raw: [JSON_TYPE, "text/event-stream"], malformed },
    // `ContentTypeNotSupportedError`.
    errors: rpcErrors(-32005),
    async handle({ params, body }, call) {
      const { service } = call;
      const began = performance.now();
      const agent = findAgent(service, params.id!);
      return service.a2a.answer({ agent, card: () => findCard(call, agent.id).json, body, began }, call);
    },
  }),
];

// The Model Context Protocol: what the service exposes to MCP clients, and the endpoints that they use.

const STATELESS =
  "Always 405: the server keeps no sessions. Who wants to hear of changes sends `subscriptions/listen`.";
const MESSAGE = { description: "A JSON-RPC message.", type: "object", additionalProperties: true };

export const MCP_ROUTES: readonly Route<Service>[] = [
  show("/mcp/servers", "mcp.listServers", "List MCP servers", {
    output: "McpServerList",
    handle: (_input, { service }) => ({ servers: [...service.mcpServers.values()].map(({ record }) => record) }),
  }),
  show("/mcp/servers/:serverId", "mcp.getServer", "Inspect an MCP server", {
    output: "McpServer",
    handle: ({ params }, { service }) => findServer(service, params.serverId!).record,
  }),
  show("/mcp/servers/:serverId/tools", "mcp.listTools", "List the tools of an MCP server", {
    output: "McpToolList",
    handle({ params }, { service }) {
      const { record, tools } = findServer(service, params.serverId!);
      const listed = [...tools.values()].map((tool) => ({
        name: tool.name,
        type: tool.type,
        definition: tool.definition(),
      }));
      return { server: record, tools: listed };
    },
  }),
  // What other MCP servers have beside tools: clients that ask for all of it get empty lists.
  ...(
    [
      ["prompts", "Prompts", "McpPromptList"],
      ["resources", "Resources", "McpResourceList"],
      ["resource-templates", "ResourceTemplates", "McpResourceTemplateList"],
    ] as const
  ).map(([path, what, output]) =>
    show(`/mcp/servers/:serverId/${path}`, `mcp.list${what}`, `List the ${path} of an MCP server: none`, {
      output,
      handle: ({ params }, { service }) =>
        findServer(service, params.serverId!) && { [what[0]!.toLowerCase() + what.slice(1)]: [] },
    }),
  ),
  post("/mcp/servers/:serverId/tools/:toolName", "mcp.invokeTool", "Call a tool of an MCP server without MCP", {
    description: "A failure is an error of the API, with its status; over MCP it is a result with `isError`.",
    body: "InvokeMcpToolRequest",
    idempotent: true,
    bodyOptional: true,
    failures: ["conflict"],
    readsHeaders: ["x-approval-id"],
    output: "McpCallResult",
    handle: ({ params, body }, call) => invoke(call, params.serverId!, params.toolName!, body),
  }),
  endpoint("POST", "mcp.post", "Send a message to an MCP server", "Streamable HTTP, without sessions."),
  endpoint("GET", "mcp.listen", "Ask an MCP server for a stream of its own", STATELESS),
  endpoint("DELETE", "mcp.endSession", "End a session with an MCP server", STATELESS),
];

/** A row for the MCP endpoint. Once the request is authorized, errors are JSON-RPC errors. */
function endpoint(method: Method, operation: string, summary: string, description: string): Route<Service> {
  return {
    operation,
    method,
    path: "/mcp/:serverId/mcp",
    group: "execution",
    summary,
    description,
    ...(method === "POST"
      ? { checks: { body: () => true }, schemas: { body: MESSAGE }, failures: ["not_acceptable"] }
      : { failures: ["method_not_allowed"] }),
    readsHeaders: true,
    pages: "allowed",
    output: { raw: method === "POST" ? ["application/json", "text/event-stream"] : [], malformed: parseError },
    errors: rpcErrors(-32000),
    async handle({ params, body }, call) {
      const { mcpLists, manifest } = call.service;
      const { heartbeat } = manifest.server.limits;
      const answer = await findServer(call.service, params.serverId!).endpoint(run, mcpLists, heartbeat);
      return answer(method, body, call);
    },
  };
}

function findServer(service: Service, id: string): McpServer<Service> {
  const server = service.mcpServers.get(id);
  if (server === undefined) throw notFound(`MCP server ${quoted(id)} does not exist`);
  return server;
}

async function invoke(call: Context<Service>, serverId: string, name: string, body: InvokeMcpToolRequest) {
  const server = findServer(call.service, serverId);
  const tool = server.tools.get(name);
  if (tool === undefined) throw notFound(`MCP server ${quoted(serverId)} has no tool ${quoted(name)}`);
  return run(call, tool, body.arguments ?? {}, body.context);
}

/** Runs the row of the API table for the caller, with the same checks and permissions as a request. */
async function run(
  call: Context<Service>,
  tool: Exposed,
  given: Record<string, unknown>,
  context?: Record<string, unknown>,
): Promise<McpCallResult> {
  const { operation, params, body } = tool.plan(given, context);
  return tool.present(await perform(call, operation, { params, body }));
}

// Agents for user interfaces that speak AG-UI.

export const AG_UI_ROUTES = [
  post("/agents/:id/ag-ui", "agui.run", "Stream a run as events of AG-UI", {
    description:
      "`threadId` is the conversation. A run that waits for a person ends with the outcome `interrupt`, and the client's next run brings the answer in `resume`.",
    body: "AgUiRequest",
    ...GENERATION,
    idempotent: "stream",
    output: { events: "AgUiEvent", failure: (message) => ({ type: "RUN_ERROR", message }) },
    handle: ({ params, body }, call) => answerAgUi(findAgent(call.service, params.id!), body, call),
  }),
  get("/agents/:id/ag-ui", "agui.capabilities", "What an agent can do, for AG-UI", {
    output: { bare: "AgUiCapabilities", type: "application/json; charset=utf-8" },
    handle({ params }, { service }) {
      const agent = findAgent(service, params.id!);
      const memory = agent.detail().memory === null ? null : service.chooseMemory(agent.id).memory;
      return { body: JSON.stringify(capabilitiesOf(agent, memory !== null && keepsState(memory))) };
    },
  }),
];
