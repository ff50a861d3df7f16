/** One MCP server over streamable HTTP: stateless, for the current revision of the protocol and earlier ones. */

import { randomUUID } from "node:crypto";
import { setMaxListeners } from "node:events";
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
import { invalid, messageOf, ServiceError } from "../lib/errors.ts";
import type { TextSink } from "../lib/event-sink.ts";
import type { ToolProgress } from "../lib/tool-progress.ts";
import type { Exposed } from "./exposed.ts";
import type { ListChanges } from "./list-changes.ts";
import { INTERNAL, rpcError, rpcId } from "./rpc.ts";

/* Converts between the requests and replies of the pipeline and `Request` and `Response`, which the SDK uses. */

/** Headers that the protocol reads. Names of tools and their arguments may be in them too. */
const READ = /^(?:accept|content-type|last-event-id|mcp-[a-z0-9-]+)$/;
const ACCEPTED = "application/json, text/event-stream";
const VISIBLE = /^[\t\x20-\x7e\x80-\xff]*$/;

/** @throws ServiceError `invalid_input` for a header that the protocol does not allow */
function toWebRequest(method: string, given: Readonly<Record<string, string>>, signal: AbortSignal): Request {
  const headers = new Headers();
  for (const [name, value] of Object.entries(given)) {
    if (!READ.test(name)) continue;
    if (!VISIBLE.test(value)) throw invalid(`header ${name} must not have characters beyond Latin-1`);
    // The SDK wants both named, and some clients send what every HTTP library does.
    headers.set(name, name === "accept" && value.includes("*/*") ? `${value}, ${ACCEPTED}` : value);
  }
  // The SDK does not use the address: the route has been found already.
  return new Request("http://localhost/", { method, headers, signal });
}

/** Headers that belong to one connection, or that the transport writes. */
const OWN = new Set(["connection", "content-length", "date", "keep-alive", "transfer-encoding"]);

/** @param failure writes the last text of a stream that fails */
async function toRawReply(response: Response, failure: (message: string) => string): Promise<RawReply> {
  const { status, body } = response;
  const headers = [...response.headers].filter(([name]) => !OWN.has(name)).flat();
  if (body === null) return { status, headers, body: null };
  if (!response.headers.get("content-type")?.startsWith("text/event-stream")) {
    return { status, headers, body: await response.text() };
  }
  return { status, headers, stream: (sink) => pump(body, sink), failure };
}

async function pump(body: ReadableStream<Uint8Array>, sink: TextSink): Promise<void> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  sink.onLeave(() => void reader.cancel().catch(() => {}));
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const wait = sink.send(decoder.decode(value, { stream: true }));
    if (wait !== undefined) await wait;
  }
}

/*  * Cancels a tool call when its client sends a message that says so. Revisions of the protocol before 2026-07-28 do that: their
   clients keep the connection of a call that they have given up. The session id says whose call is meant. It is only a random name
   that the client gets with its first reply, and no process stores it.
 */

const SESSION_HEADER = "mcp-session-id";

class Cancellations<S> {
  /** Running calls that belong to a session. */
  readonly #running = new Map<string, AbortController>();

  /** Runs `work` with a call whose signal also aborts when its client cancels it. */
  async run<T>(call: Context<S>, id: string | number, work: (call: Context<S>) => Promise<T>): Promise<T> {
    const key = callKey(call, id);
    if (key === null) return work(call);
    const controller = new AbortController();
    this.#running.set(key, controller);
    try {
      const signal = AbortSignal.any([call.signal, controller.signal]);
      // As with the signal of the call: every tool that runs in parallel adds a listener.
      setMaxListeners(0, signal);
      return await work(callWith(call, { signal, aborts: undefined }));
    } finally {
      if (this.#running.get(key) === controller) this.#running.delete(key);
    }
  }

  /** Aborts the calls that this body cancels. */
  handleMessage(call: Context<S>, body: unknown): void {
    for (const message of [body].flat() as { method?: unknown; params?: { requestId?: unknown } }[]) {
      if (message?.method !== "notifications/cancelled") continue;
      const key = callKey(call, message.params?.requestId);
      if (key !== null) this.#running.get(key)?.abort(new Error("the client has cancelled the call"));
    }
  }
}

/** Headers that go with the reply to a client's first message. */
const sessionHeaders = (body: unknown): readonly string[] =>
  (body as { method?: unknown } | undefined)?.method === "initialize" ? [SESSION_HEADER, randomUUID()] : [];

/** Null without a session. The user is part of the key, so that nobody can cancel the calls of somebody else. */
function callKey({ headers, user }: Pick<Context<unknown>, "headers" | "user">, id: unknown): string | null {
  const session = headers[SESSION_HEADER];
  return session === undefined ? null : JSON.stringify([user?.id ?? user?.sub, session, id]);
}

/** The call of a request, with a signal or a listener of its own. */
const callWith = <S>(call: Context<S>, own: Partial<Context<S>>): Context<S> =>
  new Proxy(call, { get: (whole, key) => Reflect.get(Object.hasOwn(own, key) ? own : whole, key) });

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
  const listens = (body: unknown) => (Object(body) as { method?: unknown }).method === "subscriptions/listen";
  const handlerOf = (body: unknown) => {
    const { method, params } = (body ?? {}) as { method?: unknown; params?: { name?: unknown } };
    if (listens(body))
      return lists.handlerOf(id, () => createMcpHandler(() => declare(true), { keepAliveMs: keepAlive }));
    const tool = method === "tools/call" ? server.tools.get(params?.name as string) : undefined;
    return (tool?.type ?? "tool") === "tool" ? shortCalls : longCalls;
  };

  return async (method, body, call) => {
    const request = toWebRequest(method, call.headers, call.signal);
    calls.set(request, call);
    cancellations.handleMessage(call, body);
    const failure = (message: string) => `event: message\ndata: ${rpcError(rpcId(body), INTERNAL, message)}\n\n`;
    const ask = async () =>
      toRawReply(await handlerOf(body).fetch(request, body === undefined ? {} : { parsedBody: body }), failure);
    const reply = await (listens(body) ? lists.bounded(call.user, ask) : ask());
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
