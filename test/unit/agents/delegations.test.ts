/** What a delegation hands down to the sub-agent and up from it: usage, user, conversation, ids and memory. */
import assert from "node:assert/strict";
import type { TestContext } from "node:test";
import { test } from "node:test";
import type { Agent } from "../../../core/agents/agent.ts";
import { EVERYTHING } from "../../../core/identity/principal.ts";
import { threadId } from "../../../core/memory/threads.ts";
import { agentsOf, caller, compile, eventsOf, historyOf } from "../../support/agents.ts";

const delegate = (agentId: string, task: string) => ({ tool: "delegate_task", input: { agentId, task } });
const PRICES = { input: 1, output: 1 };

/** A chief with the rules `replies`, and a writer on another model. */
const team = (t: TestContext, replies: object[]) =>
  agentsOf(t, {
    providers: { demo: { use: "scripted", models: { boss: { replies, prices: PRICES }, echo: { prices: PRICES } } } },
    agents: {
      chief: { model: "demo/boss", subAgents: ["writer"], memory: false },
      writer: { name: "Writer", model: "demo/echo", memory: false },
    },
  });

test("the usage and cost of sub-agents count in those of the agent that delegated, whole and in a stream", async (t) => {
  const agents = await team(t, [{ call: delegate("writer", "one two three"), then: "done" }]);
  const { usage } = await agents.get("chief")!.generateText({ input: "go" }, caller());
  const [own] = (await historyOf(agents.get("writer")!, 0, 1)).entries;
  assert.deepEqual([own!.usage!.promptTokens, own!.usage!.completionTokens], [3, 3]);
  const events = await eventsOf(agents.get("chief")!.stream({ input: "go" }, caller()));
  const steps = events.of("finish-step").map((event) => event.usage as typeof usage);
  const sum = (key: "totalTokens" | "promptTokens") => steps.reduce((all, step) => all + step[key], 0);
  // The history has the counts once.
  const { inputTokens, outputTokens, ...total } = events.of("finish")[0]!.totalUsage as typeof usage;
  assert.deepEqual([inputTokens, outputTokens], [total.promptTokens, total.completionTokens]);
  assert.equal(steps.length, 3);
  assert.deepEqual([total.totalTokens, total.promptTokens], [sum("totalTokens"), sum("promptTokens")]);
  assert.equal(usage.totalTokens, total.totalTokens);
  assert.equal(usage.cost, usage.totalTokens / 1e6);
  assert.deepEqual((await historyOf(agents.get("chief")!, 0, 1)).entries[0]!.usage, total);
});

test("what a sub-agent used before it failed counts too", async (t) => {
  const agents = await agentsOf(t, {
    providers: {
      demo: {
        use: "scripted",
        models: {
          boss: { replies: [{ call: delegate("writer", "go"), then: "done" }] },
          middle: { replies: [{ call: { tool: "nothing", input: { a: "b" } }, then: "{{ result.missing }}" }] },
        },
      },
    },
    tools: { nothing: { use: "nothing" } },
    agents: {
      chief: { model: "demo/boss", subAgents: ["writer"], memory: false },
      writer: { model: "demo/middle", tools: ["nothing"], memory: false },
    },
  });
  const result = await agents.get("chief")!.generateText({ input: "go" }, caller());
  const [failed] = (await historyOf(agents.get("writer")!, 0, 1)).entries;
  assert.equal(failed!.status, "error");
  assert.ok(failed!.usage!.totalTokens > 0);
  const events = await eventsOf(agents.get("chief")!.stream({ input: "go" }, caller()));
  const own = events.of("finish-step").filter((event) => event.subAgentId === undefined);
  const ofChief = own.reduce((all, event) => all + (event.usage as { totalTokens: number }).totalTokens, 0);
  assert.equal(result.usage.totalTokens, ofChief + failed!.usage!.totalTokens);
});

test("the history entry and the tools of a sub-agent know the user and the conversation of the agent above it", async (t) => {
  const replies = [{ call: { tool: "whoami", input: {} }, then: "{{ result.conversationId }}" }];
  const agents = await agentsOf(t, {
    providers: {
      demo: {
        use: "scripted",
        models: { boss: { replies: [{ call: delegate("writer", "go"), then: "{{ result }}" }] }, asks: { replies } },
      },
    },
    tools: { whoami: { use: "whoami" } },
    agents: {
      chief: { model: "demo/boss", subAgents: ["writer"], memory: false },
      writer: { model: "demo/asks", tools: ["whoami"], memory: false },
    },
  });
  const options = { memory: { userId: "ada", conversationId: "c1" } };
  assert.equal((await agents.get("chief")!.generateText({ input: "go", options }, caller())).text, "c1");
  const [entry] = (await historyOf(agents.get("writer")!, 0, 1)).entries;
  assert.deepEqual([entry!.userId, entry!.conversationId], ["ada", "c1"]);
});

test("parts of two delegations at once to one agent have call ids of their own, and no id twice", async (t) => {
  const both = [delegate("writer", "write this"), delegate("writer", "write that")];
  const agents = await team(t, [{ call: both, then: "done" }]);
  const events = await eventsOf(agents.get("chief")!.stream({ input: "go" }, caller()));
  const calls = events.of("tool-call").map((event) => event.toolCallId as string);
  assert.equal(calls.length, 2);
  for (const [index, text] of ["write this", "write that"].entries()) {
    const own = events.list.filter((event) => event.subAgentCallId === calls[index]);
    assert.deepEqual(
      own.map((event) => event.type),
      ["start-step", "text-start", "text-delta", "text-end", "finish-step"],
    );
    assert.equal(own[2]!.delta, text);
    assert.equal(own[2]!.id, `${calls[index]}:text`);
    assert.deepEqual([own[2]!.subAgentId, own[2]!.subAgentName], ["writer", "Writer"]);
  }
});

test("subAgentCallId is the toolCallId of the delegation as the stream has it, at every depth", async (t) => {
  const agents = await agentsOf(t, {
    providers: {
      demo: {
        use: "scripted",
        models: {
          boss: { replies: [{ call: [delegate("editor", "a"), delegate("editor", "b")], then: "done" }] },
          middle: { replies: [{ call: delegate("writer", "{{ input }}"), then: "edited" }] },
        },
      },
    },
    agents: {
      chief: { model: "demo/boss", subAgents: ["editor"], memory: false },
      editor: { model: "demo/middle", subAgents: ["writer"], memory: false },
      writer: { model: "demo/echo", memory: false },
    },
  });
  const events = await eventsOf(agents.get("chief")!.stream({ input: "go" }, caller()));
  const delegations = new Map(events.of("tool-call").map((event) => [event.toolCallId, event]));
  assert.equal(delegations.size, 4);
  const results = events.of("tool-result").map((event) => event.toolCallId);
  assert.deepEqual(new Set(results), new Set(delegations.keys()));
  for (const event of events.of("text-delta").filter(({ subAgentId }) => subAgentId === "writer")) {
    const inner = delegations.get(event.subAgentCallId)!;
    assert.equal((inner.input as { task: string }).task, event.delta);
    const outer = delegations.get(inner.subAgentCallId)!;
    assert.equal((outer.input as { task: string }).task, event.delta);
  }
  const starts = events.of("text-start").map((event) => event.id);
  assert.equal(new Set(starts).size, starts.length);
});

/** A chief and a writer with a memory. A scripted model counts the words of its prompt, which shows what it was told. */
async function rememberingTeam(t: TestContext, writerMemory = "shared") {
  const compiled = await compile(t, {
    providers: {
      demo: {
        use: "scripted",
        models: {
          boss: {
            replies: [
              { when: "^write (.+)", call: delegate("writer", "{{ match[1] }}"), then: "{{ result }}" },
              { when: "^both", call: [delegate("writer", "one"), delegate("writer", "two")], then: "done" },
              { text: "hm" },
            ],
          },
        },
      },
    },
    memory: { shared: {}, other: {} },
    agents: {
      chief: { model: "demo/boss", subAgents: ["writer"], memory: "shared" },
      writer: { model: "demo/echo", memory: writerMemory },
    },
  });
  assert.deepEqual(compiled.problems, []);
  const access = (name: string) => compiled.memories.get(name)!.for(EVERYTHING);
  const messages = async (name: string, id: string) => {
    const { messages: list } = await access(name).earlier(id, { limit: 100 }, "ada");
    return list.map(({ role, parts }) => [
      role,
      (parts ?? []).map((part) => (part as { text?: string }).text ?? "").join(""),
    ]);
  };
  const options = { memory: { userId: "ada", conversationId: "c1" } };
  const say = (agent: Agent, input: string, more: object = {}) =>
    agent.generateText({ input, options: { ...options, ...more } }, caller());
  const [chief, writer] = ["chief", "writer"].map((id) => compiled.agents.get(id)!) as [Agent, Agent];
  const told = async (agent: Agent) => (await historyOf(agent, 0, 1)).entries[0]!.usage!.promptTokens;
  return { chief, writer, messages, say, told };
}

test("a sub-agent with memory remembers what it was asked in the conversation, and neither agent reads the other's turns", async (t) => {
  const { chief, writer, messages, say, told } = await rememberingTeam(t);
  await say(chief, "write alpha beta");
  assert.equal(await told(writer), 2);
  await say(chief, "write gamma");
  assert.equal(await told(writer), 5);
  assert.deepEqual(await messages("shared", "c1:writer"), [
    ["user", "alpha beta"],
    ["assistant", "alpha beta"],
    ["user", "gamma"],
    ["assistant", "gamma"],
  ]);
  assert.deepEqual(await messages("shared", "c1"), [
    ["user", "write alpha beta"],
    ["assistant", "alpha beta"],
    ["user", "write gamma"],
    ["assistant", "gamma"],
  ]);
  const [entry] = (await historyOf(writer, 0, 1)).entries;
  assert.deepEqual([entry!.userId, entry!.conversationId], ["ada", "c1"]);
});

test("a sub-agent with a memory of its own stores its turns there, and begins anew in another conversation", async (t) => {
  const { chief, writer, messages, say, told } = await rememberingTeam(t, "other");
  await say(chief, "write alpha beta");
  await say(chief, "write gamma", { memory: { userId: "ada", conversationId: "c2" } });
  assert.equal(await told(writer), 1);
  assert.equal((await messages("other", "c1:writer")).length, 2);
  assert.deepEqual(await messages("shared", "c1:writer"), []);
});

test("two delegations at once to a sub-agent with memory are both stored, each question before its answer", async (t) => {
  const { chief, messages, say } = await rememberingTeam(t);
  await say(chief, "both");
  const stored = await messages("shared", "c1:writer");
  assert.equal(stored.length, 4);
  for (const text of ["one", "two"]) {
    const roles = stored.filter((message) => message[1] === text).map(([role]) => role);
    assert.deepEqual(roles, ["user", "assistant"]);
  }
});

test("a sub-agent stores nothing when the run above it is read-only or has no conversation", async (t) => {
  const { chief, writer, messages, say, told } = await rememberingTeam(t);
  await say(chief, "write alpha beta");
  const memory = { userId: "ada", conversationId: "c1", options: { readOnly: true } };
  await say(chief, "write gamma", { memory });
  assert.equal(await told(writer), 5);
  assert.equal((await messages("shared", "c1:writer")).length, 2);
  await say(chief, "write delta", { memory: { userId: "ada" } });
  assert.equal(await told(writer), 1);
});

test("a thread's id is that of one conversation and one agent, also where both have colons in their ids", () => {
  assert.notEqual(threadId("c", "a:b"), threadId("c:a", "b"));
  assert.equal(threadId("order-1042", "writer"), "order-1042:writer");
});
