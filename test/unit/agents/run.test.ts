import assert from "node:assert/strict";
import { test } from "node:test";
import { agentsOf, assistant, caller, eventsOf, historyOf } from "../../support/agents.ts";
import { until } from "../../support/probe.ts";

test("a run makes no abort signal for a model that answers at once", async (t) => {
  const agent = await assistant(t);
  // The first call shows what kind of model it is.
  await agent.generateText({ input: "hello" }, caller());
  const call = caller();
  await agent.generateText({ input: "hello" }, call);
  assert.equal(call.signals, 0);
});

test("a run tells the model of a result that is not JSON, and of a tool that nobody can approve, and goes on", async (t) => {
  const cases = [
    { call: { tool: "cyclic" }, error: 'tool "cyclic" returned something that is not JSON' },
    { call: { tool: "guarded", input: {} }, error: "approval" },
  ];
  const tools = {
    cyclic: { use: "cyclic" },
    guarded: { use: "nothing", approval: true },
  };
  for (const { call, error } of cases) {
    const agent = await assistant(
      t,
      { tools: ["cyclic", "guarded"] },
      { replies: [{ call, then: "said: {{ result }}" }], tools },
    );
    const result = await agent.generateText({ input: "go" }, caller());
    assert.ok(result.text.startsWith("said: ") && result.text.includes(error), result.text);
    assert.equal(result.toolCalls.length, 1);
    assert.deepEqual(result.toolResults, []);
  }
});

test("a run takes a tool that gives nothing for null", async (t) => {
  const agent = await assistant(
    t,
    { tools: ["nothing"] },
    { replies: [{ call: { tool: "nothing" } }], tools: { nothing: { use: "nothing" } } },
  );
  const { toolResults } = await agent.generateText({ input: "go" }, caller());
  assert.equal(toolResults[0]!.output, null);
});

test("a run hands its user and a key of its own to each tool call", async (t) => {
  const agent = await assistant(
    t,
    { tools: ["whoami"] },
    { replies: [{ call: [{ tool: "whoami" }, { tool: "whoami" }] }], tools: { whoami: { use: "whoami" } } },
  );
  const { toolResults } = await agent.generateText({ input: "go" }, caller({ id: "ada" }));
  const [first, second] = toolResults.map((result) => result.output as Record<string, unknown>);
  assert.deepEqual(first!.user, { id: "ada" });
  assert.notEqual(first!.key, second!.key);
});

const CALL = { type: "tool-call", toolCallId: "c", toolName: "nothing", input: "" };
const USAGE = {
  inputTokens: { total: 10, noCache: 4, cacheRead: 6, cacheWrite: 0 },
  outputTokens: { total: 8, text: 5, reasoning: 3 },
};
const FINISH = { type: "finish", finishReason: { unified: "tool-calls", raw: "x" }, usage: USAGE };

test("a run feeds tool input that is not JSON back to the model as an error", async (t) => {
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

test("an agent is working while a call runs, and idle after it", async (t) => {
  const agent = await assistant(t, {}, { provider: { chunks: 2, delay: "50ms" } });
  let changes = 0;
  agent.activity.onChange(() => changes++);
  assert.equal(agent.summary().status, "idle");
  const runs = [agent.generateText({ input: "a b" }, caller()), agent.generateText({ input: "a b" }, caller())];
  assert.equal(agent.summary().status, "working");
  assert.equal(agent.detail().status, "working");
  await Promise.all(runs);
  assert.equal(agent.summary().status, "idle");
  assert.equal(changes, 2);
});

test("a client that leaves stops the tools that run", { timeout: 60_000 }, async (t) => {
  const probe = globalThis as { penstockTestWaiting?: number; penstockTestAborted?: number };
  probe.penstockTestWaiting = probe.penstockTestAborted = 0;
  const call = { tool: "wait", input: { milliseconds: 60_000 } };
  const agent = await assistant(
    t,
    { tools: ["wait"] },
    { replies: [{ call: [call, call], then: "never" }], tools: { wait: { use: "wait" } } },
  );
  const client = caller();
  const run = agent.generateText({ input: "go" }, client);
  await until(() => probe.penstockTestWaiting === 2, "both calls");
  client.leave();
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

const ENDED = {
  type: "finish",
  finishReason: { unified: "tool-calls", raw: "tool_calls" },
  usage: { inputTokens: { total: 1 }, outputTokens: { total: 1 } },
};
const begun = (id: string) => ({ type: "tool-input-start", id, toolName: "whoami" });
const called = (toolCallId: string) => ({ type: "tool-call", toolCallId, toolName: "whoami", input: "{}" });

test("calls of a model that have one id are calls of their own, in one step and in several, with keys of their own", async (t) => {
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

test("the pieces of a tool call's input have the id of their call, whatever the model calls it", async (t) => {
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
