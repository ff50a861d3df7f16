/** The Model Context Protocol: what the service exposes to MCP clients, and the endpoints that they use. */
import type { InvokeMcpToolRequest, McpCallResult } from "../../../generated/types.ts";
import type { Service } from "../../app/service.ts";
import type { Context, Method, Route } from "../../http/route.ts";
import { notFound, quoted } from "../../lib/errors.ts";
import type { Exposed } from "../../mcp/exposed.ts";
import { parseError } from "../../mcp/rpc.ts";
import type { McpServer } from "../../mcp/servers.ts";
import { perform } from "./perform.ts";
import { post, rpcErrors, show } from "./row.ts";

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
