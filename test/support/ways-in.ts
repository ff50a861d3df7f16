/**
 * Every way in that can run a tool, read a conversation or start an execution: one table, through which tests walk. A protocol or a
 * route that is new has its lines here.
 */
import { until } from "./probe.ts";
import type { Loose } from "./served-upstream.ts";
import type { TestService } from "./service.ts";
import { openSocket } from "./sockets.ts";
import type { Act } from "./ways-service.ts";

interface Said {
  /** Of HTTP; of a socket that was closed, its code. */
  readonly status: number;
  readonly text: string;
}

interface Sent {
  readonly headers?: Record<string, string>;
  /** Text beside what is asked, that nothing reads. */
  readonly filler?: string | undefined;
}

interface Way {
  /** The rows of the routes table, and the sockets, that it goes through. */
  readonly rows: readonly string[];
  /** Whether what a tool is given there is in the traces; left out: it is. */
  readonly traced?: false;
  /** Runs a tool. */
  tool?(service: TestService, act: Act, sent: Sent): Promise<Said>;
  /** How that call runs after a person has said yes. `never`: nobody is asked. */
  readonly after?: "same call with the id" | "by itself" | "never";
  /** Where a chat goes on, with the approval as `GET /approvals` shows it. */
  goOn?(service: TestService, asked: Loose, sent: Sent): Promise<unknown>;
  /** Says something in a conversation: the model is told of it, or it is replied. */
  talk?(service: TestService, conversationId: string, text: string, sent: Sent): Promise<Said>;
  /** Starts an execution of the workflow `flow`. */
  start?(service: TestService, executionId: string, input: Loose, sent: Sent): Promise<Said>;
}

async function post(service: TestService, path: string, body: object, { headers, filler }: Sent): Promise<Said> {
  const reply = await service.post(path, filler === undefined ? body : { ...body, filler }, headers);
  return { status: reply.status, text: await reply.text() };
}

const MCP = { accept: "application/json, text/event-stream", "mcp-protocol-version": "2025-06-18" };
const rpc = (service: TestService, name: string, given: object, { headers, ...sent }: Sent) =>
  post(
    service,
    "/mcp/main/mcp",
    { jsonrpc: "2.0", id: 1, method: "tools/call", params: { name, arguments: given } },
    { ...sent, headers: { ...MCP, ...headers } },
  );
const invoke = (service: TestService, name: string, given: object, sent: Sent) =>
  post(service, `/mcp/servers/main/tools/${name}`, { arguments: given }, sent);
const shop = (service: TestService, part: string, method: string, given: unknown[], sent: Sent) =>
  post(service, "/shop", { part, method, with: given }, sent);

let count = 0;
const nextId = () => `n-${++count}`;

const a2a = (service: TestService, text: string, contextId: string, { headers, ...sent }: Sent) => {
  const message = { messageId: nextId(), role: "ROLE_USER", parts: [{ text }], contextId };
  const body = { jsonrpc: "2.0", id: 7, method: "SendMessage", params: { message } };
  return post(service, "/a2a/clerk", body, { ...sent, headers: { "a2a-version": "1.0", ...headers } });
};

const agUi = (service: TestService, threadId: string, messages: Loose[], sent: Sent, more: object = {}) =>
  post(service, "/agents/clerk/ag-ui", { threadId, runId: nextId(), protocolVersion: "1.0", messages, ...more }, sent);

const said = (text: string) => ({ id: nextId(), role: "user", content: text });

/** An endpoint of an agent that takes `input` and `options`, and has the tools. */
const generation = (endpoint: string, more: object = {}): Way => {
  const path = `/agents/clerk/${endpoint}`;
  return {
    rows: [`POST /agents/:id/${endpoint}`],
    talk: (service, conversationId, text, sent) =>
      post(service, path, { input: text, ...more, options: { memory: { conversationId } } }, sent),
  };
};

/** One of them that runs tools, and goes on as a chat client does it: the whole conversation, with the answer in the part of the call. */
const chatting = (endpoint: string): Way => {
  const path = `/agents/clerk/${endpoint}`;
  return {
    ...generation(endpoint),
    tool: (service, { prompt }, sent) => post(service, path, { input: prompt }, sent),
    after: "by itself",
    goOn(service, { approvalId, toolCallId, toolName, input }, sent) {
      const approval = { id: approvalId, approved: true };
      const part = { type: `tool-${toolName}`, toolCallId, state: "approval-responded", input, approval };
      const user = { role: "user", parts: [{ type: "text", text: `pay ${input.amount}` }] };
      const messages = [user, { id: "a1", role: "assistant", parts: [{ type: "step-start" }, part] }];
      return post(service, path, { input: messages }, sent);
    },
  };
};

async function overSocket(service: TestService, input: string, { headers = {}, filler }: Sent): Promise<Said> {
  const socket = await openSocket(`${service.url}/v1/responses`, { headers });
  socket.send({ type: "response.create", model: "clerk", input, filler });
  const closed = socket.closed.then(({ code, reason }) => ({ status: code, text: reason }));
  const ended = async (): Promise<Said> => {
    for (;;) {
      const message = await socket.next();
      if (message.type === "error" || message.type === "response.completed")
        return { status: message.status ?? 200, text: JSON.stringify(message) };
    }
  };
  const first = await Promise.race([ended().catch(() => closed), closed]);
  await socket.close();
  return first;
}

async function inBackground(service: TestService, input: string, sent: Sent): Promise<Said> {
  const begun = await post(service, "/v1/responses", { model: "clerk", input, background: true }, sent);
  if (begun.status !== 200) return begun;
  const { id } = JSON.parse(begun.text);
  const read = async (path: string) => {
    const reply = await service.get(path, sent.headers);
    return { status: reply.status, text: await reply.text() };
  };
  // One that waits for a person has a stream that goes on.
  const run = `/agents/clerk/runs/${id.slice("resp_".length)}`;
  await until(async () => !(await read(run)).text.includes('"running"'), "the rest of the run");
  const { text } = await read(run);
  return text.includes('"waiting"') ? { status: 200, text } : read(`/v1/responses/${id}?stream=true`);
}

export const WAYS: Readonly<Record<string, Way>> = {
  "POST /tools/:name/execute": {
    rows: ["POST /tools/:name/execute"],
    tool: (service, { tool, input }, sent) => post(service, `/tools/${tool}/execute`, { input }, sent),
    after: "same call with the id",
  },
  "a tool at POST /mcp/servers/:serverId/tools/:toolName": {
    rows: ["POST /mcp/servers/:serverId/tools/:toolName"],
    tool: (service, { tool, input }, sent) => invoke(service, tool, input, sent),
    after: "same call with the id",
    talk: (service, conversationId, prompt, sent) => invoke(service, "agent_clerk", { prompt, conversationId }, sent),
    start: (service, executionId, input, sent) =>
      invoke(service, "workflow_flow", { input, options: { executionId } }, sent),
  },
  "a tool at POST /mcp/:serverId/mcp": {
    rows: ["POST /mcp/:serverId/mcp"],
    tool: (service, { tool, input }, sent) => rpc(service, tool, input, sent),
    after: "same call with the id",
    start: (service, executionId, input, sent) =>
      rpc(service, "workflow_flow", { input, options: { executionId } }, sent),
  },
  "a custom route": {
    rows: ["POST /shop"],
    tool: (service, { tool, input }, sent) => shop(service, "tools", "execute", [tool, input], sent),
    after: "same call with the id",
    talk: (service, conversationId, input, sent) =>
      shop(service, "agents", "generateText", ["clerk", { input, options: { memory: { conversationId } } }], sent),
    start: (service, executionId, input, sent) =>
      shop(service, "workflows", "execute", ["flow", { input, options: { executionId } }], sent),
  },
  "a custom socket": {
    rows: ["WS /shop-socket"],
    traced: false,
    async tool(service, { tool, input }, { headers = {}, filler }) {
      const socket = await openSocket(`${service.url}/shop-socket`, { headers });
      socket.send({ tool, input, filler });
      const reply = socket.next().then((message) => ({ status: 200, text: JSON.stringify(message) }));
      const closed = socket.closed.then(({ code, reason }) => ({ status: code, text: reason }));
      const first = await Promise.race([reply.catch(() => closed), closed]);
      await socket.close();
      return first;
    },
    after: "never",
  },
  "POST /agents/:id/text": chatting("text"),
  "POST /agents/:id/stream": chatting("stream"),
  "POST /agents/:id/chat": chatting("chat"),
  "POST /agents/:id/object": generation("object", { schema: { type: "object" } }),
  "POST /agents/:id/stream-object": generation("stream-object", { schema: { type: "object" } }),
  "POST /agents/:id/ag-ui": {
    rows: ["POST /agents/:id/ag-ui"],
    tool: (service, { prompt }, sent) => agUi(service, nextId(), [said(prompt)], sent),
    after: "by itself",
    goOn(service, { approvalId, toolCallId, toolName, input, conversationId }, sent) {
      const call = { id: toolCallId, function: { name: toolName, arguments: JSON.stringify(input) } };
      const messages = [said(`pay ${input.amount}`), { id: "a1", role: "assistant", toolCalls: [call] }];
      const resume = [{ interruptId: approvalId, status: "resolved", payload: { approved: true } }];
      return agUi(service, conversationId, messages, sent, { resume });
    },
    talk: (service, conversationId, text, sent) => agUi(service, conversationId, [said(text)], sent),
  },
  "the thread at POST /agents/:id/ag-ui": {
    rows: ["POST /agents/:id/ag-ui"],
    talk: (service, conversationId, _text, sent) => agUi(service, conversationId, [], sent),
  },
  "POST /v1/chat/completions": {
    rows: ["POST /v1/chat/completions"],
    tool: (service, { prompt }, sent) =>
      post(service, "/v1/chat/completions", { model: "clerk", messages: [{ role: "user", content: prompt }] }, sent),
    after: "by itself",
  },
  "POST /v1/responses": {
    rows: ["POST /v1/responses"],
    tool: (service, { prompt }, sent) => post(service, "/v1/responses", { model: "clerk", input: prompt }, sent),
    after: "by itself",
  },
  "WS /v1/responses": {
    rows: ["WS /v1/responses"],
    tool: (service, { prompt }, sent) => overSocket(service, prompt, sent),
    after: "by itself",
  },
  "POST /v1/responses in the background": {
    rows: ["POST /v1/responses", "GET /v1/responses/:id"],
    tool: (service, { prompt }, sent) => inBackground(service, prompt, sent),
    after: "by itself",
  },
  "a sub-agent": {
    rows: ["POST /agents/:id/text"],
    tool: (service, { prompt }, sent) => post(service, "/agents/chief/text", { input: `delegate ${prompt}` }, sent),
    after: "by itself",
    talk(service, conversationId, text, sent) {
      const body = { input: `delegate ${text}`, options: { memory: { conversationId } } };
      return post(service, "/agents/chief/text", body, sent);
    },
  },
  "an agent over MCP": {
    rows: ["POST /mcp/:serverId/mcp"],
    tool: (service, { prompt }, sent) => rpc(service, "agent_clerk", { prompt }, sent),
    after: "by itself",
    talk: (service, conversationId, prompt, sent) => rpc(service, "agent_clerk", { prompt, conversationId }, sent),
  },
  "an agent over A2A": {
    rows: ["POST /a2a/:id"],
    tool: (service, { tool, prompt, input }, sent) => a2a(service, prompt, `c-${tool}-${input.amount ?? 0}`, sent),
    after: "by itself",
    talk: (service, conversationId, text, sent) => a2a(service, text, conversationId, sent),
  },
  "a step of a workflow": {
    rows: ["POST /workflows/:id/execute"],
    tool: (service, { tool, input }, sent) => post(service, `/workflows/${tool}/execute`, { input }, sent),
    after: "by itself",
    start: (service, executionId, input, sent) =>
      post(service, "/workflows/flow/execute", { input, options: { executionId } }, sent),
  },
  "a step of a streamed workflow": {
    rows: ["POST /workflows/:id/stream"],
    tool: (service, { tool, input }, sent) => post(service, `/workflows/${tool}/stream`, { input }, sent),
    after: "by itself",
    start: (service, executionId, input, sent) =>
      post(service, "/workflows/flow/stream", { input, options: { executionId } }, sent),
  },
  "a workflow over MCP": {
    rows: ["POST /mcp/:serverId/mcp"],
    tool: (service, { tool, input }, sent) => rpc(service, `workflow_${tool}`, { input }, sent),
    after: "by itself",
  },
  "a tap of a workflow": {
    rows: ["POST /workflows/:id/execute"],
    tool: (service, { tool, input }, sent) => post(service, `/workflows/tap-${tool}/execute`, { input }, sent),
    after: "never",
  },
  "an agent in a workflow": {
    rows: ["POST /workflows/:id/execute"],
    tool: (service, { prompt }, sent) => post(service, "/workflows/asks/execute", { input: { prompt } }, sent),
    after: "by itself",
    talk: (service, conversationId, prompt, sent) =>
      post(service, "/workflows/asks/execute", { input: { prompt }, options: { conversationId } }, sent),
  },
};

/** The ways that can do one thing. */
export const waysThat = <K extends "tool" | "talk" | "start">(can: K): [string, Way & Required<Pick<Way, K>>][] =>
  Object.entries(WAYS).flatMap(([name, way]) =>
    way[can] === undefined ? [] : [[name, way as Way & Required<Pick<Way, K>>]],
  );
