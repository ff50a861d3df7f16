/**
 * Every way in that can run a tool, read a conversation or start an execution: one table, through which tests walk. A protocol or a
 * route that is new has its lines here.
 */
import { PAY_PLUGIN } from "./approvals.ts";
import { calls, type OpenAIUpstream, says, type UpstreamRequest } from "./openai-upstream.ts";
import { pluginFolder } from "./plugin-folder.ts";
import { type Loose, type ServedUpstream, serveUpstream } from "./served-upstream.ts";
import type { TestService } from "./service.ts";
import { openSocket } from "./sockets.ts";

/** A call of a tool, made by itself, or by an agent that is asked for it. */
interface Act {
  readonly tool: "pay" | "note";
  readonly input: Loose;
  readonly prompt: string;
}
export const pays = (amount: number): Act => ({ tool: "pay", input: { amount }, prompt: `pay ${amount}` });
export const notes = (text: string): Act => ({ tool: "note", input: { text }, prompt: `note ${text}` });

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
  readonly after?: "same call with the id" | "same call" | "by itself" | "with the answer in the chat" | "never";
  /** Where a chat goes on, with the approval as `GET /approvals` shows it. */
  goOn?(service: TestService, asked: Loose, sent: Sent): Promise<unknown>;
  /** Says something in a conversation: the model is told of it, or it is replied. */
  talk?(service: TestService, conversationId: string, text: string, sent: Sent): Promise<Said>;
  /** Starts an execution of the workflow `flow`. */
  start?(service: TestService, executionId: string, input: Loose, sent: Sent): Promise<Said>;
}

const PLUGINS = {
  "tools/note.mjs": `export default { kind: "tool", name: "note",
    parameters: { type: "object", properties: { text: { type: "string" } }, required: ["text"], additionalProperties: false },
    execute: ({ text }) => { globalThis.penstockPaid.push(text); return { noted: text }; } };`,
  ...PAY_PLUGIN,
  "routes/shop.mjs": `export default { kind: "route", name: "shop", method: "POST", path: "/shop", body: { type: "object" },
    handle: ({ body }, call) => call[body.part][body.method](...body.with) };`,
  "sockets/shop-socket.mjs": `export default { kind: "socket", name: "shop-socket", path: "/shop-socket", async message(peer, data) {
    peer.send(await peer.call.tools.execute(data.tool, data.input).catch((error) => ({ error: error.message }))); } };`,
};

const TOOLS = ["pay", "note"] as const;
const each = <T>(of: (tool: string) => [string, T]): Record<string, T> => Object.fromEntries(TOOLS.map(of));
const step = (tool: string) => (tool === "pay" ? { amount: "{{ input.amount }}" } : { text: "{{ input.text }}" });

const MANIFEST = {
  server: { limits: { body: { default: "64KiB", generation: "80KiB" } } },
  tools: { pay: { use: "pay", approval: true }, note: { use: "note" } },
  memory: { chats: {} },
  agents: { chief: { model: "up/test-model", subAgents: ["clerk"], memory: "chats" } },
  workflows: {
    flow: { steps: [{ id: "one", andThen: { set: { seen: "{{ input }}" } } }] },
    asks: { steps: [{ id: "ask", andAgent: { agent: "clerk", prompt: "{{ input.prompt }}" } }] },
    ...each((tool) => [tool, { steps: [{ id: "do", andThen: { tool, input: step(tool) } }] }]),
    ...each((tool) => [`tap-${tool}`, { steps: [{ id: "do", andTap: { tool, input: step(tool) } }] }]),
  },
  routes: [{ use: "shop" }, { use: "shop-socket" }],
  mcp: { servers: { main: { tools: [...TOOLS], agents: ["clerk"], workflows: ["flow", ...TOOLS] } } },
};

/** The agent `clerk` has both tools and a memory. Its model calls the tool that it is asked for, and else says all that it was told. */
export async function serveWays(test: Loose, more: Record<string, unknown> = {}): Promise<ServedUpstream> {
  const { agents, ...manifest } = MANIFEST;
  const clerk = { model: "up/test-model", tools: [...TOOLS], memory: "chats" };
  const served = await serveUpstream(
    test,
    { memory: false },
    { ...manifest, agents: { ...agents, clerk }, ...more },
    { plugins: [pluginFolder(test, PLUGINS)], env: { SERVICE_CONSOLE_ACCESS_KEY: "the-key-of-the-console" } },
  );
  served.upstream.fallback(answerTo);
  return served;
}

function answerTo({ lastUserText, toolOutputs, body }: UpstreamRequest): ReturnType<typeof says> {
  const [, delegated] = /^delegate (.*)$/s.exec(lastUserText) ?? [];
  const [, amount] = /\bpay (\d+)/.exec(lastUserText) ?? [];
  const [, text] = /\bnote (\S+)/.exec(lastUserText) ?? [];
  if (toolOutputs.length > 0) return says(JSON.stringify({ done: toolOutputs }));
  if (delegated !== undefined)
    return calls([{ id: "d1", name: "delegate_task", input: { agentId: "clerk", task: delegated } }]);
  if (amount !== undefined) return calls([{ id: "c1", name: "pay", input: { amount: Number(amount) } }]);
  if (text !== undefined) return calls([{ id: "c1", name: "note", input: { text } }]);
  return says(JSON.stringify({ told: body.messages }));
}

/** All that the model was told since a request. */
export const toldSince = ({ requests }: OpenAIUpstream, begin: number): string =>
  JSON.stringify(requests.slice(begin).map(({ body }) => body.messages));

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
    after: "with the answer in the chat",
    goOn(service, { approvalId, toolCallId, toolName, input }, sent) {
      const approval = { id: approvalId, approved: true };
      const part = { type: `tool-${toolName}`, toolCallId, state: "approval-responded", input, approval };
      const user = { role: "user", parts: [{ type: "text", text: `pay ${input.amount}` }] };
      const messages = [user, { id: "a1", role: "assistant", parts: [{ type: "step-start" }, part] }];
      return post(service, path, { input: messages }, sent);
    },
  };
};

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
    after: "with the answer in the chat",
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
  // The ways of OpenAI's surfaces, POST /v1/chat/completions and POST /v1/responses, have their place here.
  "a sub-agent": {
    rows: ["POST /agents/:id/text"],
    tool: (service, { prompt }, sent) => post(service, "/agents/chief/text", { input: `delegate ${prompt}` }, sent),
    after: "same call",
    talk(service, conversationId, text, sent) {
      const body = { input: `delegate ${text}`, options: { memory: { conversationId } } };
      return post(service, "/agents/chief/text", body, sent);
    },
  },
  "an agent over MCP": {
    rows: ["POST /mcp/:serverId/mcp"],
    tool: (service, { prompt }, sent) => rpc(service, "agent_clerk", { prompt }, sent),
    after: "same call",
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
