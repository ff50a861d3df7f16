import assert from "node:assert/strict";
import type { TestContext } from "node:test";
import { test } from "node:test";
import { agentsOf, caller, historyOf } from "../../support/agents.ts";
import { until } from "../../support/probe.ts";

const delegate = (agentId: unknown, task: unknown = "Write a poem") => ({
  tool: "delegate_task",
  input: { agentId, task },
});

/** A chief that hands every task on, and a writer that repeats it. */
const team = (t: TestContext, replies: object[], writer: object = {}) =>
  agentsOf(t, {
    providers: { demo: { use: "scripted", models: { boss: { replies } } } },
    agents: {
      chief: { name: "Chief", model: "demo/boss", subAgents: ["writer"] },
      writer: { name: "Writer", description: "Writes", model: "demo/echo", ...writer },
    },
  });

test("a sub-agent is the tool delegate_task of the agent above it, and its answer the tool's output", async (t) => {
  const agents = await team(t, [{ call: delegate("writer"), then: "Here: {{ result }}" }]);
  const result = await agents.get("chief")!.generateText({ input: "go" }, caller());
  assert.equal(result.text, "Here: Write a poem");
  assert.deepEqual(result.toolCalls[0]!.input, { agentId: "writer", task: "Write a poem" });
  assert.equal(result.toolResults[0]!.output, "Write a poem");
  const [entry] = (await historyOf(agents.get("writer")!, 0, 1)).entries;
  assert.equal(entry!.input, "Write a poem");
  assert.equal(entry!.status, "completed");
});

test("a sub-agent sees the context and the user of the request", async (t) => {
  const agents = await team(t, [{ call: delegate("writer"), then: "done" }], {
    instructions: "{{ context.a }} {{ user.id }} three",
  });
  const options = { context: { a: "one" } };
  await agents.get("chief")!.generateText({ input: "go", options }, caller({ id: "two" }));
  assert.equal((await historyOf(agents.get("writer")!, 0, 1)).entries[0]!.usage!.promptTokens, 6);
});

test("a delegation that makes no sense is told to the model", async (t) => {
  for (const [call, message] of [
    [delegate("nobody"), 'input.agentId must be one of "writer"'],
    [delegate("writer", ""), "input.task must be a non-empty string"],
  ] as const) {
    const agents = await team(t, [{ call, then: "{{ result }}" }]);
    assert.equal((await agents.get("chief")!.generateText({ input: "go" }, caller())).text, message);
  }
});

test("a sub-agent whose model fails is a tool error of the agent above it", async (t) => {
  const agents = await agentsOf(t, {
    providers: {
      demo: { use: "scripted", models: { boss: { replies: [{ call: delegate("writer"), then: "{{ result }}" }] } } },
      bad: { use: "scripted", replies: [{ error: "refused" }] },
    },
    agents: {
      chief: { model: "demo/boss", subAgents: ["writer"] },
      writer: { model: "bad/echo" },
    },
  });
  const { text } = await agents.get("chief")!.generateText({ input: "go" }, caller());
  assert.match(text, /^model provider failed: /);
});

test("agents that delegate in a circle come to an end", async (t) => {
  const agents = await agentsOf(t, {
    providers: { demo: { use: "scripted", replies: [{ call: delegate("a"), then: "{{ result }}" }] } },
    agents: { a: { model: "demo/echo", subAgents: ["a"] } },
  });
  const { text } = await agents.get("a")!.generateText({ input: "go" }, caller());
  assert.match(text, /levels deep at most/);
  assert.equal((await historyOf(agents.get("a")!, 0, 100)).total, 5);
});

test("a client that leaves stops the sub-agent too", { timeout: 60_000 }, async (t) => {
  const agents = await agentsOf(t, {
    providers: {
      demo: {
        use: "scripted",
        models: { boss: { replies: [{ call: delegate("writer"), then: "x" }] }, slow: { firstDelay: "60s" } },
      },
    },
    agents: { chief: { model: "demo/boss", subAgents: ["writer"] }, writer: { model: "demo/slow" } },
  });
  const call = caller();
  const run = agents.get("chief")!.generateText({ input: "go" }, call);
  const begun = async () => (await historyOf(agents.get("writer")!, 0, 1)).entries.length > 0;
  await until(begun, "the run of the writer");
  call.leave();
  await assert.rejects(run);
  for (const id of ["chief", "writer"])
    assert.equal((await historyOf(agents.get(id)!, 0, 1)).entries[0]!.status, "cancelled");
});
