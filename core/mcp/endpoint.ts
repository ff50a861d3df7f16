/** One MCP server over streamable HTTP: stateless, for the current revision of the protocol and earlier ones. */
import {
  type CallToolResult,
  createMcpHandler,
  ProtocolError,
  ProtocolErrorCode,
  McpServer as SdkServer,
  type ServerContext,
} from "@modelcontextprotocol/server";
import type { McpCallResult, McpServer } from "../../generated/types.ts";
import { failureText } from "../http/encode.ts";
import type { Context, RawReply } from "../http/route.ts";
import { messageOf, ServiceError } from "../lib/errors.ts";
import type { ToolProgress } from "../lib/tool-progress.ts";
import { Cancellations, callWith, sessionHeaders } from "./cancellation.ts";
import type { Exposed } from "./exposed.ts";
import type { ListChanges } from "./list-changes.ts";
import { INTERNAL, rpcError, rpcId } from "./rpc.ts";
import { toRawReply, toWebRequest } from "./web.ts";

/** Runs a tool of a server on behalf of the caller. Throws ServiceError as the API does. */
export type RunTool<S> = (call: Context<S>, tool: Exposed, given: Record<string, unknown>) => Promise<McpCallResult>;

/**
 * Answers one HTTP request.
 *
 * @param body parsed JSON; undefined for a method without one
 */
export type McpEndpoint<S> = (method: string, body: unknown, call: Context<S>) => Promise<RawReply>;

/** @param keepAlive milliseconds between two heartbeats of a silent stream */
export function createEndpoint<S>(
  server: { readonly record: McpServer; readonly tools: ReadonlyMap<string, Exposed> },
  run: RunTool<S>,
  lists: ListChanges,
  keepAlive: number,
): McpEndpoint<S> {
  const { id, name, version, description } = server.record;
  /** The calls that requests belong to: the SDK hands over nothing but the request when it asks for a server. */
  const calls = new WeakMap<Request, Context<S>>();

  const cancellations = new Cancellations<S>();

  /** In earlier revisions a client would have to hold a connection open to be told anything. */
  const declare = (listChanged: boolean) =>
    new SdkServer(
      { name, version },
      { capabilities: { tools: { listChanged } }, instructions: description || undefined },
    );
  const serve = (call: Context<S>, era: "legacy" | "modern"): SdkServer => {
    const instance = declare(era === "modern");
    // The SDK compares the headers that repeat arguments with what this says of the arguments.
    instance.toolInputSchemaJson = (tool) => server.tools.get(tool)?.definition().inputSchema;
    instance.server.setRequestHandler("tools/list", () => ({ tools: [...server.tools.values()].map(listed) }));
    instance.server.setRequestHandler("tools/call", ({ params }, { mcpReq }) => {
      const tool = server.tools.get(params.name);
      const given = params.arguments ?? {};
      const known = followed(call, mcpReq);
      if (tool !== undefined) return cancellations.run(known, mcpReq.id, (own) => answer(own, tool, given, run));
      throw new ProtocolError(ProtocolErrorCode.InvalidParams, `unknown tool ${JSON.stringify(params.name)}`);
    });
    return instance;
  };

  const makeHandler = (responseMode: "auto" | "sse") =>
    createMcpHandler(({ requestInfo, era }) => serve(calls.get(requestInfo!)!, era), {
      responseMode,
      keepAliveMs: keepAlive,
    });
  const shortCalls = makeHandler("auto");
  /** Replies with a stream that has heartbeats, so that neither a proxy nor the time limit of requests ends it. */
  const longCalls = makeHandler("sse");
  const handlerOf = (body: unknown) => {
    const { method, params } = (body ?? {}) as { method?: unknown; params?: { name?: unknown } };
    if (method === "subscriptions/listen")
      return lists.handlerOf(id, () => createMcpHandler(() => declare(true), { keepAliveMs: keepAlive }));
    const tool = method === "tools/call" ? server.tools.get(params?.name as string) : undefined;
    return (tool?.type ?? "tool") === "tool" ? shortCalls : longCalls;
  };

  return async (method, body, call) => {
    const request = toWebRequest(method, call.headers, call.signal);
    calls.set(request, call);
    cancellations.handleMessage(call, body);
    const response = await handlerOf(body).fetch(request, body === undefined ? {} : { parsedBody: body });
    const failure = (message: string) => `event: message\ndata: ${rpcError(rpcId(body), INTERNAL, message)}\n\n`;
    const reply = await toRawReply(response, failure);
    return { ...reply, headers: [...reply.headers, ...sessionHeaders(body)] };
  };
}

/** The call as a client sees it that has asked for the progress of its tool. */
function followed<S>(call: Context<S>, { _meta, notify }: ServerContext["mcpReq"]): Context<S> {
  const progressToken = _meta?.progressToken;
  if (progressToken === undefined) return call;
  const progress = (report: ToolProgress) => {
    // A client that has left is told nothing.
    notify({ method: "notifications/progress", params: { progressToken, ...report } }).catch(() => {});
  };
  return callWith(call, { progress });
}

function listed(tool: Exposed) {
  const { inputSchema, ...rest } = tool.definition();
  return { ...rest, inputSchema: inputSchema as { type: "object" } };
}

/** A failure is told to the model, which may try something else: the message of the API, or the request id to find it in the log. */
async function answer<S>(
  call: Context<S>,
  tool: Exposed,
  given: Record<string, unknown>,
  run: RunTool<S>,
): Promise<CallToolResult> {
  try {
    return (await run(call, tool, given)) as CallToolResult;
  } catch (error) {
    // A call that the client has cancelled is not a failure of the service.
    if (!(error instanceof ServiceError) && !call.signal.aborted)
      call.logger.error({ err: error, tool: tool.name }, messageOf(error));
    // What the API says of it in headers: a result of MCP has none.
    const { executionId, approvalId } = (error instanceof ServiceError && error.facts) || {};
    const lines = [
      failureText(error, call.requestId),
      executionId && `x-execution-id: ${executionId}`,
      approvalId && `x-approval-id: ${approvalId}`,
    ];
    const text = lines.filter((line) => line !== undefined).join("\n");
    return { content: [{ type: "text", text }], isError: true };
  }
}
