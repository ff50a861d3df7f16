import assert from "node:assert/strict";
import { test } from "node:test";
import { ServiceError } from "../../../core/lib/errors.ts";
import { agentsOf, assistant, caller, eventsOf, historyOf, usage } from "../../support/agents.ts";

const SUM = { when: "add", call: { tool: "add", input: { a: 2, b: 3 } }, then: "It is {{ result.sum }}." };

test("POST /agents/:id/text gives the text, the five numbers of usage, the model and the finish reason", async (t) => {
  const agent = await assistant(t, { instructions: "Be kind." });
  assert.deepEqual(await agent.generateText({ input: "hello there you" }, caller()), {
    text: "hello there you",
    usage: usage(5, 3),
    model: "demo/echo",
    finishReason: "stop",
    toolCalls: [],
    toolResults: [],
  });
});

test("POST /agents/:id/text makes no abort signal for a model that answers at once", async (t) => {
  const agent = await assistant(t);
  // The first call shows what kind of model it is.
  await agent.generateText({ input: "hello" }, caller());
  const call = caller();
  await agent.generateText({ input: "hello" }, call);
  assert.equal(call.signals, 0);
});

test("POST /agents/:id/text runs the tools that the model calls and lists calls and results of all steps", async (t) => {
  const agent = await assistant(t, { tools: ["add"] }, { replies: [SUM], tools: { add: { use: "add" } } });
  const result = await agent.generateText({ input: "please add" }, caller());
  assert.equal(result.text, "It is 5.");
  assert.equal(result.finishReason, "stop");
  const { toolCallId } = result.toolCalls[0]!;
  assert.deepEqual(result.toolCalls, [{ type: "tool-call", toolCallId, toolName: "add", input: { a: 2, b: 3 } }]);
  assert.deepEqual(result.toolResults, [
    { type: "tool-result", toolCallId, toolName: "add", input: { a: 2, b: 3 }, output: { sum: 5 } },
  ]);
  const steps = (await historyOf(agent, 0, 1)).entries[0]!;
  assert.deepEqual(steps.usage, result.usage);
  assert.ok(result.usage.promptTokens > 2, "usage is the sum over both steps");
});

test("POST /agents/:id/text runs the tool calls of one step in parallel: calls that wait for each other all answer", {
  timeout: 60_000,
}, async (t) => {
  const call = ["a", "b", "c", "d"].map((name) => ({ tool: "meet", input: { people: 4, name } }));
  const agent = await assistant(
    t,
    { tools: ["meet"] },
    { replies: [{ call, then: "done" }], tools: { meet: { use: "meet" } } },
  );
  const result = await agent.generateText({ input: "go" }, caller());
  assert.equal(result.toolResults.length, 4);
  assert.equal(result.text, "done");
});

test("POST /agents/:id/text tells the model what went wrong with a tool, and goes on", async (t) => {
  const cases = [
    { call: { tool: "fail" }, error: "the shop is closed" },
    { call: { tool: "add", input: { a: 1 } }, error: "input.b is required" },
    { call: { tool: "nosuch" }, error: 'there is no tool "nosuch"; the tools are fail, add, cyclic, guarded' },
    { call: { tool: "cyclic" }, error: 'tool "cyclic" returned something that is not JSON' },
    { call: { tool: "guarded", input: {} }, error: "approval" },
  ];
  const tools = {
    fail: { use: "fail" },
    add: { use: "add" },
    cyclic: { use: "cyclic" },
    guarded: { use: "nothing", approval: true },
  };
  for (const { call, error } of cases) {
    const agent = await assistant(
      t,
      { tools: ["fail", "add", "cyclic", "guarded"] },
      { replies: [{ call, then: "said: {{ result }}" }], tools },
    );
    const result = await agent.generateText({ input: "go" }, caller());
    assert.ok(result.text.startsWith("said: ") && result.text.includes(error), result.text);
    assert.equal(result.toolCalls.length, 1);
    assert.deepEqual(result.toolResults, []);
  }
});

test("POST /agents/:id/text takes a tool that gives nothing for null", async (t) => {
  const agent = await assistant(
    t,
    { tools: ["nothing"] },
    { replies: [{ call: { tool: "nothing" } }], tools: { nothing: { use: "nothing" } } },
  );
  const { toolResults } = await agent.generateText({ input: "go" }, caller());
  assert.equal(toolResults[0]!.output, null);
});

test("POST /agents/:id/text hands context, user, conversation and a key of its own to each tool call", async (t) => {
  const agent = await assistant(
    t,
    { tools: ["whoami"] },
    { replies: [{ call: [{ tool: "whoami" }, { tool: "whoami" }] }], tools: { whoami: { use: "whoami" } } },
  );
  const options = { context: { tenant: "x" }, memory: { conversationId: "c1", userId: "u" } };
  const { toolResults } = await agent.generateText({ input: "go", options }, caller({ id: "ada" }));
  const [first, second] = toolResults.map((result) => result.output as Record<string, unknown>);
  assert.deepEqual(first!.user, { id: "ada" });
  assert.deepEqual(first!.context, { tenant: "x" });
  assert.equal(first!.conversationId, "c1");
  assert.equal(first!.requestId, "request-1");
  assert.notEqual(first!.key, second!.key);
});

test("POST /agents/:id/text stops after maxSteps model calls: the request's, else the agent's, else 5", async (t) => {
  const loop = (agent: object) =>
    agentsOf(t, {
      providers: {
        loop: {
          use: "parts",
          steps: {
            m: [
              [CALL, FINISH],
              [CALL, FINISH],
            ],
          },
        },
      },
      tools: { nothing: { use: "nothing" } },
      agents: { assistant: { model: "loop/m", tools: ["nothing"], ...agent } },
    });
  const steps = async (agent: object, options?: object) => {
    const run = (await loop(agent)).get("assistant")!;
    const result = await run.generateText({ input: "go", ...(options && { options }) }, caller());
    assert.equal(result.finishReason, "tool-calls");
    return result.toolCalls.length;
  };
  assert.equal(await steps({}), 5);
  assert.equal(await steps({ maxSteps: 3 }), 3);
  assert.equal(await steps({ maxSteps: 3 }, { maxSteps: 7 }), 7);
});

const CALL = { type: "tool-call", toolCallId: "c", toolName: "nothing", input: "" };
const USAGE = {
  inputTokens: { total: 10, noCache: 4, cacheRead: 6, cacheWrite: 0 },
  outputTokens: { total: 8, text: 5, reasoning: 3 },
};
const FINISH = { type: "finish", finishReason: { unified: "tool-calls", raw: "x" }, usage: USAGE };

test("POST /agents/:id/text sums usage over the steps, cached and reasoning tokens too", async (t) => {
  const text = [
    { type: "text-start", id: "1" },
    { type: "text-delta", id: "1", delta: "ok" },
    { type: "text-end", id: "1" },
    { ...FINISH, finishReason: { unified: "stop", raw: "x" } },
  ];
  const agents = await agentsOf(t, {
    providers: { p: { use: "parts", steps: { m: [[CALL, FINISH], text] } } },
    tools: { nothing: { use: "nothing" } },
    agents: { a: { model: "p/m", tools: ["nothing"] } },
  });
  const result = await agents.get("a")!.generateText({ input: "go" }, caller());
  assert.equal(result.text, "ok");
  assert.deepEqual(result.usage, {
    promptTokens: 20,
    completionTokens: 16,
    totalTokens: 36,
    cachedInputTokens: 12,
    reasoningTokens: 6,
  });
});

test("POST /agents/:id/text feeds tool input that is not JSON back to the model as an error", async (t) => {
  const broken = { ...CALL, input: '{"a": ' };
  const text = [
    { type: "text-start", id: "1" },
    { type: "text-delta", id: "1", delta: "sorry" },
    { type: "text-end", id: "1" },
    FINISH,
  ];
  const agents = await agentsOf(t, {
    providers: { p: { use: "parts", steps: { m: [[broken, FINISH], text] } } },
    tools: { nothing: { use: "nothing" } },
    agents: { a: { model: "p/m", tools: ["nothing"] } },
  });
  const result = await agents.get("a")!.generateText({ input: "go" }, caller());
  assert.equal(result.text, "sorry");
  assert.equal(result.toolCalls[0]!.input, '{"a": ');
});

test("POST /agents/:id/text fails with provider_failed when the model fails, and the history says so", async (t) => {
  const agent = await assistant(t, {}, { replies: [{ error: "rate_limited" }] });
  await assert.rejects(agent.generateText({ input: "go" }, caller()), (error: unknown) => {
    assert.ok(error instanceof ServiceError);
    assert.equal(error.kind, "provider_failed");
    assert.match(error.message, /^model provider failed: /);
    return true;
  });
  const [entry] = (await historyOf(agent, 0, 1)).entries;
  assert.equal(entry!.status, "error");
  assert.match(entry!.error!, /^model provider failed: /);
});

test("an agent is working while a call runs, and idle after it", async (t) => {
  const agent = await assistant(t, {}, { provider: { chunks: 2, delay: "50ms" } });
  let changes = 0;
  agent.onStatusChange(() => changes++);
  assert.equal(agent.summary().status, "idle");
  const runs = [agent.generateText({ input: "a b" }, caller()), agent.generateText({ input: "a b" }, caller())];
  assert.equal(agent.summary().status, "working");
  assert.equal(agent.detail().status, "working");
  await Promise.all(runs);
  assert.equal(agent.summary().status, "idle");
  assert.equal(changes, 2);
});

test("a client that leaves stops the model at once, and the history says cancelled", { timeout: 60_000 }, async (t) => {
  for (const pace of [{ firstDelay: "60s" }, { chunks: 100, delay: "1s" }]) {
    const agent = await assistant(t, {}, { provider: pace });
    const call = caller();
    const run = agent.generateText({ input: "hello there" }, call);
    assert.equal((await historyOf(agent, 0, 1)).entries[0]!.status, "running");
    setTimeout(() => call.leave(), 20);
    await assert.rejects(run, /the client has left/);
    const [entry] = (await historyOf(agent, 0, 1)).entries;
    assert.equal(entry!.status, "cancelled");
    assert.equal(entry!.error, undefined);
    assert.equal(agent.summary().status, "idle");
  }
});

test("a client that leaves stops the tools that run", { timeout: 60_000 }, async (t) => {
  const probe = globalThis as { penstockTestAborted?: number };
  probe.penstockTestAborted = 0;
  const call = { tool: "wait", input: { milliseconds: 60_000 } };
  const agent = await assistant(
    t,
    { tools: ["wait"] },
    { replies: [{ call: [call, call], then: "never" }], tools: { wait: { use: "wait" } } },
  );
  const client = caller();
  const run = agent.generateText({ input: "go" }, client);
  setTimeout(() => client.leave(), 20);
  await assert.rejects(run);
  assert.equal(probe.penstockTestAborted, 2);
  assert.equal((await historyOf(agent, 0, 1)).entries[0]!.status, "cancelled");
});

test("a client that has left before the run begins ends it at once", async (t) => {
  const agent = await assistant(t, {}, { provider: { firstDelay: "60s" } });
  const call = caller();
  call.leave();
  await assert.rejects(agent.generateText({ input: "go" }, call));
  assert.equal((await historyOf(agent, 0, 1)).entries[0]!.status, "cancelled");
});

test("GET /agents and GET /agents/:id describe an agent, without its instructions", async (t) => {
  const agents = await agentsOf(t, {
    tools: { add: { use: "add" } },
    agents: {
      chief: {
        name: "Chief",
        description: "Leads",
        instructions: "SECRET",
        model: ["demo/echo", "demo/echo"],
        tools: ["add"],
        subAgents: ["writer"],
      },
      writer: { name: "Writer", description: "Writes", model: "demo/echo" },
    },
  });
  const summary = agents.get("chief")!.summary();
  assert.deepEqual(Object.keys(summary).sort(), [
    "description",
    "id",
    "isTelemetryEnabled",
    "memory",
    "model",
    "name",
    "status",
    "subAgents",
    "tools",
  ]);
  assert.equal(summary.model, "demo/echo");
  assert.deepEqual(
    summary.tools.map((tool) => tool.name),
    ["add"],
  );
  assert.equal((summary.tools[0]!.parameters as { type: string }).type, "object");
  assert.deepEqual(summary.subAgents, [
    { id: "writer", name: "Writer", description: "Writes", status: "idle", model: "demo/echo" },
  ]);
  const detail = agents.get("chief")!.detail();
  assert.deepEqual(detail.tools, ["add"]);
  assert.equal(detail.memory, null);
  assert.doesNotMatch(JSON.stringify([summary, detail]), /SECRET/);
});

const ENDED = {
  type: "finish",
  finishReason: { unified: "tool-calls", raw: "tool_calls" },
  usage: { inputTokens: { total: 1 }, outputTokens: { total: 1 } },
};
const begun = (id: string) => ({ type: "tool-input-start", id, toolName: "whoami" });
const called = (toolCallId: string) => ({ type: "tool-call", toolCallId, toolName: "whoami", input: "{}" });

test("POST /agents/:id/text: calls with one id are calls of their own, in one step and in several, with keys of their own", async (t) => {
  const step = [begun("call_0"), called("call_0"), called("call_0"), called(""), called(""), ENDED];
  const agents = await agentsOf(t, {
    providers: { p: { use: "parts", steps: { m: [step, step] } } },
    tools: { whoami: { use: "whoami" } },
    agents: { a: { model: "p/m", tools: ["whoami"], maxSteps: 2 } },
  });
  const { toolCalls, toolResults } = await agents.get("a")!.generateText({ input: "go" }, caller());
  const ids = ["call_0", "call_0_2", "call_2", "call_3", "call_0_3", "call_0_4", "call_4", "call_5"];
  assert.deepEqual(
    toolCalls.map(({ toolCallId }) => toolCallId),
    ids,
  );
  const keys = toolResults.map(({ output }) => (output as { key: string }).key);
  const [run] = keys[0]!.split(":");
  assert.deepEqual(
    keys,
    ids.map((id, index) => `${run}:${index < 4 ? 1 : 2}:${id}`),
  );
});

test("POST /agents/:id/stream: the pieces of an input have the id of their call, whatever the model calls it", async (t) => {
  const step = [
    begun("call_0"),
    { type: "tool-input-delta", id: "call_0", delta: "{}" },
    { type: "tool-input-end", id: "call_0" },
    called("call_0"),
    ENDED,
  ];
  const agents = await agentsOf(t, {
    providers: { p: { use: "parts", steps: { m: [step, step] } } },
    tools: { whoami: { use: "whoami" } },
    agents: { a: { model: "p/m", tools: ["whoami"], maxSteps: 2 } },
  });
  const { list } = await eventsOf(agents.get("a")!.stream({ input: "go" }, caller()));
  const ids = list.flatMap(({ type, id, toolCallId }) => (String(type).startsWith("tool-") ? [id ?? toolCallId] : []));
  assert.deepEqual(ids, [...Array(5).fill("call_0"), ...Array(5).fill("call_0_2")]);
});
