/** A foreign MCP server over HTTP, of the SDK, that can die and come back at its address. */
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { TestContext } from "node:test";
import { createMcpHandler, WebStandardStreamableHTTPServerTransport } from "@modelcontextprotocol/server";
import { type ToolState, toolServer } from "../fixtures/mcp/tools.mjs";
import { onPort } from "./ports.ts";

export interface ForeignServer {
  readonly url: string;
  readonly state: ToolState;
  stop(): Promise<void>;
  /** At the same address. What it knew of sessions is gone. */
  start(): Promise<void>;
}

/** What is answered in the place of the server; null: nothing. */
type Guard = (request: Request) => Promise<Response | null>;

/** `current`: without sessions, of the newest revision. `sessions`: of the one before, which begins with a session. */
export async function startForeignServer(
  test: Pick<TestContext, "after">,
  kind: "current" | "sessions",
  guard: Guard = async () => null,
): Promise<ForeignServer> {
  const state = { grown: false, waiting: false, stopped: false };
  let server: Server;
  const startOn = async (at: number) => {
    const answer = kind === "current" ? current(state) : withSessions(state);
    const guarded: Answer = async (request) => (await guard(request)) ?? answer(request);
    server = createServer((request, response) => void serve(request, response, guarded));
    server.listen(at, "127.0.0.1");
    await once(server, "listening");
    return at;
  };
  const stop = () =>
    new Promise<void>((resolve) => {
      server.close(() => resolve());
      server.closeAllConnections();
    });
  const port = await onPort(startOn);
  test.after(stop);
  return { url: `http://127.0.0.1:${port}/mcp`, state, start: async () => void (await startOn(port)), stop };
}

type Answer = (request: Request) => Promise<Response>;

function current(state: ToolState): Answer {
  const handler = createMcpHandler(({ requestInfo }) => toolServer(state, headersOf(requestInfo)));
  state.changed = () => handler.notify.toolsChanged();
  return (request) => handler.fetch(request);
}

function withSessions(state: ToolState): Answer {
  const sessions = new Map<string, WebStandardStreamableHTTPServerTransport>();
  return async (request) => {
    const known = request.headers.get("mcp-session-id");
    if (known !== null) {
      const session = sessions.get(known);
      return session === undefined ? new Response(null, { status: 404 }) : session.handleRequest(request);
    }
    const transport: WebStandardStreamableHTTPServerTransport = new WebStandardStreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      onsessioninitialized: (id) => void sessions.set(id, transport),
    });
    await toolServer(state, headersOf(request)).connect(transport);
    return transport.handleRequest(request);
  };
}

const headersOf = (request: Request | undefined) => Object.fromEntries(request?.headers ?? []);

async function serve(request: IncomingMessage, response: ServerResponse, answer: Answer): Promise<void> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  const left = new AbortController();
  response.on("close", () => left.abort());
  const { method = "GET", headers } = request;
  const body = method === "GET" || method === "DELETE" ? null : Buffer.concat(chunks);
  const given = { method, headers: headers as Record<string, string>, body, signal: left.signal };
  const reply = await answer(new Request("http://127.0.0.1/mcp", given));
  response.writeHead(reply.status, Object.fromEntries(reply.headers));
  try {
    for await (const chunk of reply.body ?? []) response.write(chunk);
  } catch {
    // The client has left.
  }
  response.end();
}
