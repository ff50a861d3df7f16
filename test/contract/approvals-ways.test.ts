/** Every way in to a tool: without a person's approval it runs on none of them, and it runs once after that. */
import assert from "node:assert/strict";
import { after, before, beforeEach, describe, test } from "node:test";
import { A2aCaller, said } from "../support/a2a.ts";
import { ran, serveApprovals } from "../support/approvals.ts";
import { pluginFolder } from "../support/plugin-folder.ts";
import { until } from "../support/probe.ts";
import { dataOf, type Loose } from "../support/served-upstream.ts";
import type { TestService } from "../support/service.ts";
import { openSocket } from "../support/sockets.ts";

const PLUGINS = {
  "routes/pay.mjs": `export default { kind: "route", name: "pay", method: "POST", path: "/shop/pay",
    body: { type: "object" }, handle: async ({ body }, call) => call.tools.execute("pay", body) };`,
  "sockets/paysocket.mjs": `export default { kind: "socket", name: "paysocket", path: "/shop", async message(peer, data) {
    peer.send(await peer.call.tools.execute("pay", data).catch((error) => ({ error: error.message }))); } };`,
};
const CALL = { tool: "pay", input: { amount: "{{ int(match[1]) }}" } };
const MANIFEST = {
  routes: [{ use: "pay" }, { use: "paysocket" }],
  providers: {
    demo: {
      use: "scripted",
      replies: [
        { when: "pay (\\d+)", call: CALL },
        {
          when: "delegate (\\d+)",
          call: { tool: "delegate_task", input: { agentId: "clerk", task: "pay {{ match[1] }}" } },
        },
      ],
    },
  },
  agents: {
    clerk: { model: "demo/echo", tools: ["pay"], memory: false },
    chief: { model: "demo/echo", subAgents: ["clerk"], memory: false },
  },
  workflows: {
    step: { steps: [{ id: "pay", andThen: { tool: "pay", input: "{{ input }}" } }] },
    tap: { steps: [{ id: "pay", andTap: { tool: "pay", input: "{{ input }}" } }] },
    asks: { steps: [{ id: "pay", andAgent: { agent: "clerk", prompt: "pay {{ input.amount }}" } }] },
  },
  mcp: { servers: { main: { tools: ["pay"], agents: ["clerk"], workflows: ["step"] } } },
};

interface Way {
  /** Makes the call, and gives all that was replied as text. @param headers what a client adds */
  call(service: TestService, amount: number, headers: Record<string, string>): Promise<string>;
  /** Where a chat goes on. */
  path?: string;
  /** How it runs after a yes. `never`: nobody is asked. */
  after: "same call with the id" | "same call" | "by itself" | "with the answer in the chat" | "never";
}

const post =
  (path: string, body: (amount: number) => unknown): Way["call"] =>
  async (service, amount, headers) =>
    (await service.post(path, body(amount), headers)).text();
const prompt = (text: string) => (amount: number) => ({ input: `${text} ${amount}` });
const rpc =
  (name: string, given: (amount: number) => object): Way["call"] =>
  async (service, amount, headers) => {
    const body = { jsonrpc: "2.0", id: 1, method: "tools/call", params: { name, arguments: given(amount) } };
    const accept = "application/json, text/event-stream";
    return (
      await service.post("/mcp/main/mcp", body, { accept, "mcp-protocol-version": "2025-06-18", ...headers })
    ).text();
  };

const WAYS: Record<string, Way> = {
  "POST /tools/:name/execute": {
    call: post("/tools/pay/execute", (amount) => ({ input: { amount } })),
    after: "same call with the id",
  },
  "POST /mcp/servers/:serverId/tools/:toolName": {
    call: post("/mcp/servers/main/tools/pay", (amount) => ({ arguments: { amount } })),
    after: "same call with the id",
  },
  "POST /mcp/:serverId/mcp": { call: rpc("pay", (amount) => ({ amount })), after: "same call with the id" },
  "a custom route": { call: post("/shop/pay", (amount) => ({ amount })), after: "same call with the id" },
  "a custom socket": {
    async call(service, amount) {
      const socket = await openSocket(`${service.url.replace("http", "ws")}/shop`);
      socket.send({ amount });
      const reply = JSON.stringify(await socket.next());
      socket.socket.close();
      return reply;
    },
    after: "never",
  },
  "POST /agents/:id/text": {
    call: post("/agents/clerk/text", prompt("pay")),
    after: "with the answer in the chat",
    path: "/agents/clerk/text",
  },
  "POST /agents/:id/stream": {
    call: post("/agents/clerk/stream", prompt("pay")),
    after: "with the answer in the chat",
    path: "/agents/clerk/stream",
  },
  "POST /agents/:id/chat": {
    call: post("/agents/clerk/chat", prompt("pay")),
    after: "with the answer in the chat",
    path: "/agents/clerk/chat",
  },
  "a sub-agent": { call: post("/agents/chief/text", prompt("delegate")), after: "same call" },
  "an agent over MCP": { call: rpc("agent_clerk", (amount) => ({ prompt: `pay ${amount}` })), after: "same call" },
  "an agent over A2A": {
    call: async (service, amount) =>
      JSON.stringify(await new A2aCaller(service).send("clerk", said(`pay ${amount}`, { contextId: `c-${amount}` }))),
    after: "by itself",
  },
  "a step of a workflow": {
    call: post("/workflows/step/execute", (amount) => ({ input: { amount } })),
    after: "by itself",
  },
  "a workflow over MCP": { call: rpc("workflow_step", (amount) => ({ input: { amount } })), after: "by itself" },
  "a tap of a workflow": { call: post("/workflows/tap/execute", (amount) => ({ input: { amount } })), after: "never" },
  "an agent in a workflow": {
    call: post("/workflows/asks/execute", (amount) => ({ input: { amount } })),
    after: "by itself",
  },
};

/** As a chat client does it: the whole conversation, with the answer in the part of the call. */
async function goOn(service: TestService, path: string, { approvalId, toolCallId, toolName, input }: Loose) {
  const approval = { id: approvalId, approved: true };
  const part = { type: `tool-${toolName}`, toolCallId, state: "approval-responded", input, approval };
  const user = { role: "user", parts: [{ type: "text", text: `pay ${input.amount}` }] };
  const messages = [user, { id: "a1", role: "assistant", parts: [{ type: "step-start" }, part] }];
  await (await service.post(path, { input: messages })).text();
}

describe("a tool that needs approval", () => {
  let service: TestService;
  let amount = 0;
  const over: (() => unknown)[] = [];
  before(async () => {
    const test = { after: (end: () => Promise<void>) => void over.push(end) };
    service = await serveApprovals(test, MANIFEST, { plugins: [pluginFolder(test as never, PLUGINS)] });
  });
  after(async () => {
    for (const end of over) await end();
  });
  beforeEach(() => {
    ran.splice(0);
    amount += 1;
  });

  for (const [name, { call, after: how, path }] of Object.entries(WAYS)) {
    test(`${name}: the tool does not run before a person has approved it, and once after that (${how})`, async () => {
      const first = await call(service, amount, {});
      assert.match(first, /approval|completed/, "it is told");
      assert.deepEqual(ran, []);
      // Whatever a client says itself is no approval.
      await call(service, amount, { "x-approval-id": "0".repeat(32) });
      assert.deepEqual(ran, []);
      const open: Loose[] = await dataOf(service.get("/approvals"));
      const mine = open.filter(({ input }) => input.amount === amount);
      for (const { approvalId } of mine) await dataOf(service.post(`/approvals/${approvalId}`, { approved: true }));
      const [{ approvalId }] = mine.length === 0 ? [{ approvalId: "" }] : mine;
      if (how === "same call with the id") await call(service, amount, { "x-approval-id": approvalId });
      if (how === "same call") await call(service, amount, {});
      if (how === "by itself") {
        await until(() => ran.length === mine.length, "the step");
        return;
      }
      if (path !== undefined) await goOn(service, path, mine[0]);
      const once = how.startsWith("same call") || path !== undefined ? [amount] : [];
      assert.deepEqual(ran, once);
      if (path !== undefined) await goOn(service, path, mine[0]);
      if (once.length > 0) await call(service, amount, { "x-approval-id": approvalId });
      assert.deepEqual(ran, once);
    });
  }
});
