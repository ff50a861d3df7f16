/** What a run of an agent that fails leaves: one line in the log, whatever way it was asked for, and a trace that says how it ended. */
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { A2aCaller, said } from "../support/a2a.ts";
import { failure, stallsBeforeHead } from "../support/openai-upstream.ts";
import { pluginFolder } from "../support/plugin-folder.ts";
import { until } from "../support/probe.ts";
import { dataOf, type Loose, type ServedUpstream, serveUpstream } from "../support/served-upstream.ts";
import type { TestService } from "../support/service.ts";
import { openSocket } from "../support/sockets.ts";

const KEY = "sk-live-77aa1200ff";
const INPUT = { input: "hello" };
const CHAT = { model: "assistant", messages: [{ role: "user", content: "hello" }] };
const RESPONSE = { model: "assistant", input: "hello" };
const MCP = { accept: "application/json, text/event-stream", "mcp-protocol-version": "2025-06-18" };
const UI = [{ id: "m1", role: "user", parts: [{ type: "text", text: "hello" }] }];
const PLUGINS = {
  "routes/desk.mjs": `export default { kind: "route", name: "desk", method: "POST", path: "/desk", body: { type: "object" },
    handle: (_, call) => call.agents.generateText("assistant", { input: "hello" }) };`,
  "tools/leave.mjs": `export default { kind: "tool", description: "waits", parameters: { type: "object" }, execute: () => "done" };`,
};

/** Asks for a run of the agent, and reads the reply to its end. */
type Door = (service: TestService) => Promise<unknown>;
const posting =
  (path: string, body: unknown, headers?: Record<string, string>): Door =>
  async (service) =>
    (await service.post(path, body, headers)).text();

const DOORS: Readonly<Record<string, Door>> = {
  "POST /agents/:id/text": posting("/agents/assistant/text", INPUT),
  "POST /agents/:id/text of a durable agent": posting("/agents/lasting/text", INPUT),
  "POST /agents/:id/text with options.background": posting("/agents/assistant/text", {
    ...INPUT,
    options: { background: true },
  }),
  "POST /agents/:id/text in a conversation": posting("/agents/assistant/text", {
    ...INPUT,
    options: { memory: { conversationId: "c-1", userId: "ada" } },
  }),
  "POST /agents/:id/stream": posting("/agents/assistant/stream", INPUT),
  "POST /agents/:id/stream of a durable agent": posting("/agents/lasting/stream", INPUT),
  "POST /agents/:id/chat": posting("/agents/assistant/chat", { input: UI }),
  "POST /agents/:id/object": posting("/agents/assistant/object", { ...INPUT, schema: { type: "object" } }),
  "POST /agents/:id/stream-object": posting("/agents/assistant/stream-object", {
    ...INPUT,
    schema: { type: "object" },
  }),
  "POST /v1/chat/completions": posting("/v1/chat/completions", CHAT),
  "POST /v1/chat/completions as a stream": posting("/v1/chat/completions", { ...CHAT, stream: true }),
  "POST /v1/responses": posting("/v1/responses", RESPONSE),
  "POST /v1/responses as a stream": posting("/v1/responses", { ...RESPONSE, stream: true }),
  "POST /v1/responses in the background": posting("/v1/responses", { ...RESPONSE, background: true }),
  "WS /v1/responses": async (service) => {
    const socket = await openSocket(`${service.url}/v1/responses`, { headers: {} });
    socket.send({ type: "response.create", ...RESPONSE });
    for (;;) {
      const { type } = await socket.next();
      if (type === "error" || type === "response.failed") break;
    }
    await socket.close();
  },
  "POST /agents/:id/ag-ui": posting("/agents/assistant/ag-ui", {
    ...{ threadId: "t1", runId: "r1", protocolVersion: "1.0" },
    messages: [{ id: "u1", role: "user", content: "hello" }],
  }),
  "POST /a2a/:agentId": (service) => new A2aCaller(service).rpc("assistant", "SendMessage", said("hello")),
  "an agent at POST /mcp/:serverId/mcp": posting(
    "/mcp/main/mcp",
    {
      ...{ jsonrpc: "2.0", id: 1, method: "tools/call" },
      params: { name: "agent_assistant", arguments: { prompt: "hello" } },
    },
    MCP,
  ),
  "generateText of a custom route": posting("/desk", {}),
};

const PROVIDERS = { demo: { use: "scripted", replies: [{ when: "pay", call: { tool: "leave" } }] } };
const MANIFEST = {
  provider: { apiKey: KEY },
  memory: { chats: {} },
  providers: PROVIDERS,
  tools: { leave: { use: "leave", approval: true } },
  agents: {
    lasting: { model: "up/test-model", durable: true },
    failing: { model: "up/test-model" },
    stopped: { model: "up/test-model" },
    asking: { model: "demo/echo", tools: ["leave"] },
  },
  workflows: { asks: { steps: [{ id: "ask", andAgent: { agent: "assistant", prompt: "hello" } }] } },
  routes: [{ use: "desk" }],
  mcp: { servers: { main: { agents: ["assistant"] } } },
};

const isFailedRun = ({ msg }: Loose): boolean => String(msg).startsWith("the run failed: ");
const isGrave = ({ level }: Loose): boolean => ["warn", "error", "fatal"].includes(level) || level >= 40;

describe("a run that fails", () => {
  let served: ServedUpstream;
  const over: (() => unknown)[] = [];
  before(async () => {
    const clean = { after: (work: unknown) => void over.push(work as () => unknown) };
    const plugins = [pluginFolder(clean as never, PLUGINS)];
    served = await serveUpstream(clean as never, { memory: "chats" }, MANIFEST, { plugins });
    served.upstream.fallback(failure(401, { message: `the key ${KEY} is not known` }));
  });
  after(async () => {
    for (const work of over) await work();
  });

  for (const [name, ask] of Object.entries(DOORS))
    test(`${name}: a run that fails writes one warn line with run, agent, kind and cause, and no secret`, async () => {
      const { service } = served;
      const from = service.log.length;
      await ask(service);
      await until(() => service.log.slice(from).some(isFailedRun), "the line of the run");
      const lines: Loose[] = service.log.slice(from).filter(isGrave);
      assert.equal(lines.length, 1, JSON.stringify(lines, null, 1));
      const [{ level, msg, runId, agentId, code, err, model }] = lines;
      assert.deepEqual([level, code, model], ["warn", "provider_failed", "up/test-model"]);
      assert.match(agentId, /^(assistant|lasting)$/);
      assert.ok(typeof runId === "string" && runId !== "");
      assert.match(msg, /^the run failed: /);
      assert.match(err.message, /is not known/);
      assert.ok(!JSON.stringify(lines).includes(KEY));
    });

  test("POST /workflows/:id/execute: an agent that fails in a step leaves a line of its run and a line of the execution", async () => {
    const { service } = served;
    const from = service.log.length;
    await posting("/workflows/asks/execute", { input: {} })(service);
    const lines: Loose[] = service.log.slice(from).filter(isGrave);
    assert.deepEqual(
      lines.map(({ level, msg, stepId }) => [level, String(msg).split(":", 1)[0], stepId]),
      [
        ["warn", "the run failed", "ask"],
        ["warn", "the execution failed at step ask", "ask"],
      ],
    );
  });

  const rootOf = async (agentId: string): Promise<Loose> => {
    const path = `/observability/traces?entityType=agent&entityId=${agentId}&limit=1`;
    const traces = async () => (await dataOf(served.service.get(path))).traces as Loose[];
    await until(async () => (await traces())[0]?.endTime !== undefined, `the trace of ${agentId}`);
    return (await traces())[0].rootSpan;
  };

  test("GET /observability/traces: agent.run.status says that a run has failed, waits for a person, or was cancelled", async () => {
    const { service, upstream } = served;
    await posting("/agents/failing/text", INPUT)(service);
    const failed = await rootOf("failing");
    assert.deepEqual([failed.attributes["agent.run.status"], failed.status.code], ["error", 2]);

    await dataOf(service.post("/agents/asking/text", { input: "pay" }));
    const waits = await rootOf("asking");
    assert.deepEqual([waits.attributes["agent.run.status"], waits.status.code], ["waiting", 0]);

    upstream.replies(stallsBeforeHead());
    const asked = upstream.requests.length;
    const from = service.log.length;
    const begun = await service.post("/agents/stopped/text", { input: "hello", options: { background: true } });
    const { runId } = ((await begun.json()) as Loose).data;
    await until(() => upstream.requests.length > asked, "the call of the model");
    await dataOf(service.post(`/agents/stopped/runs/${runId}/cancel`, {}));
    const cancelled = await rootOf("stopped");
    assert.deepEqual([cancelled.attributes["agent.run.status"], cancelled.status.code], ["cancelled", 2]);
    assert.deepEqual(service.log.slice(from).filter(isFailedRun), []);
  });
});
