/** What is traced of an agent's run: its model calls, tools, sub-agents and memory, as one tree. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import type { RunCall } from "../../../core/agents/run/caller.ts";
import type { SpanOrigin } from "../../../core/observability/span.ts";
import { agentsOf, assistant, caller, Events, historyOf } from "../../support/agents.ts";
import { spanNamed, tracing, treeOf } from "../../support/trace-sink.ts";

const traced = (trace: SpanOrigin): RunCall & { leave(): void } => Object.assign(caller(), { trace });

const ADD = {
  tools: { add: { use: "add" }, fail: { use: "fail" }, wait: { use: "wait" } },
  replies: [
    {
      when: "^add",
      call: { tool: "add", input: { a: 2, b: 3 } },
      then: "The sum is {{ result.sum }}.",
    },
    { when: "^fail", call: { tool: "fail", input: {} }, then: "It did not work." },
    { when: "^invent", call: { tool: "no_such_tool", input: {} }, then: "There is none." },
    { when: "^wait", call: { tool: "wait", input: { milliseconds: 60_000 } }, then: "Done." },
    { when: "^broken", error: "refused" },
  ],
};

test("a run is a tree: the agent, each model call, each tool, with usage and finish reasons", async (t) => {
  const { tracer, sink } = tracing();
  const agent = await assistant(t, { tools: ["add"] }, ADD);
  const result = await agent.generateText({ input: "add two and three" }, traced(tracer));
  const spans = sink.only;
  assert.deepEqual(treeOf(spans), ["invoke_agent Assistant", "  chat echo", "  execute_tool add", "  chat echo"]);
  const [run, first, tool] = spans as [(typeof spans)[0], (typeof spans)[0], (typeof spans)[0]];
  assert.deepEqual([run.kind, first.kind, tool.kind], [0, 2, 0]);
  assert.deepEqual(run.entity, { type: "agent", id: "assistant", name: "Assistant" });
  const { attributes } = run;
  assert.equal(attributes!["gen_ai.operation.name"], "invoke_agent");
  assert.equal(attributes!["gen_ai.usage.input_tokens"], result.usage.promptTokens);
  assert.equal(attributes!["gen_ai.usage.output_tokens"], result.usage.completionTokens);
  assert.deepEqual(attributes!["gen_ai.response.finish_reasons"], ["stop"]);
  const text = (content: string) => [{ type: "text", content }];
  assert.deepEqual(JSON.parse(String(attributes!["gen_ai.input.messages"])), [
    { role: "user", parts: text("add two and three") },
  ]);
  assert.deepEqual(JSON.parse(String(attributes!["gen_ai.output.messages"])), [
    { role: "assistant", finish_reason: "stop", parts: text("The sum is 5.") },
  ]);
  // Prompts are recorded with full content only.
  assert.equal(first.attributes!["gen_ai.input.messages"], undefined);
  assert.equal(first.attributes!["gen_ai.provider.name"], "demo");
  assert.equal(first.attributes!["gen_ai.request.model"], "echo");
  assert.deepEqual(first.attributes!["gen_ai.response.finish_reasons"], ["tool-calls"]);
  assert.ok(Number(first.attributes!["gen_ai.usage.input_tokens"]) > 0);
  assert.equal(typeof first.attributes!["gen_ai.response.time_to_first_chunk"], "number");
  assert.equal(tool.attributes!["gen_ai.tool.name"], "add");
  assert.equal(tool.attributes!["gen_ai.tool.call.id"], result.toolCalls[0]!.toolCallId);
  assert.equal(tool.attributes!["gen_ai.tool.call.arguments"], '{"a":2,"b":3}');
  assert.equal(tool.attributes!["gen_ai.tool.call.result"], '{"sum":5}');
  const { entries } = await historyOf(agent, 0, 1);
  assert.equal(entries[0]!.traceId, run.traceId);
});

test("content none keeps no text of anybody", async (t) => {
  const { tracer, sink } = tracing({ content: "none" });
  const agent = await assistant(t, { tools: ["add"] }, ADD);
  await agent.generateText({ input: "add two and three" }, traced(tracer));
  const text = JSON.stringify(sink.only);
  for (const said of ["two and three", "The sum", '"a\\":2']) assert.ok(!text.includes(said), said);
});

test("files are told by their type, with full content too", async (t) => {
  const { tracer, sink } = tracing({ content: "full" });
  const agent = await assistant(t);
  const data = Buffer.from("the picture itself").toString("base64");
  const url = `data:image/png;base64,${data}`;
  const file = { type: "file", mediaType: "image/png", url };
  await agent.generateText(
    { input: [{ role: "user", parts: [{ type: "text", text: "what is this" }, file] }] },
    traced(tracer),
  );
  const messages = String(sink.only[0]!.attributes!["gen_ai.input.messages"]);
  assert.match(messages, /what is this/);
  assert.match(messages, /image\/png/);
  assert.ok(!messages.includes(data.slice(0, 12)));
});

test("tools that fail and tools that do not exist are errors of their spans, not of the run", async (t) => {
  for (const [input, name, said] of [
    ["fail", "execute_tool fail", "the shop is closed"],
    ["invent", "execute_tool no_such_tool", 'there is no tool "no_such_tool"'],
  ] as const) {
    const { tracer, sink } = tracing();
    const agent = await assistant(t, { tools: ["fail"] }, ADD);
    await agent.generateText({ input }, traced(tracer));
    const span = spanNamed(sink.only, name);
    assert.equal(span.status.code, 2);
    assert.ok(span.status.message!.includes(said), span.status.message);
    assert.equal(span.attributes!["error.type"], "tool_failed");
    assert.equal(sink.only[0]!.status.code, 0);
  }
});

test("a model that fails ends its span and the run's with what the client is told", async (t) => {
  const { tracer, sink } = tracing();
  const agent = await assistant(t, {}, ADD);
  await assert.rejects(agent.generateText({ input: "broken" }, traced(tracer)));
  const message = "model provider failed: unavailable";
  assert.deepEqual(treeOf(sink.only), [`invoke_agent Assistant ! ${message}`, `  chat echo ! ${message}`]);
  assert.equal(sink.only[0]!.attributes!["error.type"], "provider_failed");
});

test("other tries and fallbacks are events of the model call", async (t) => {
  const { tracer, sink } = tracing();
  const models = { down: { replies: [{ error: "unavailable" }] } };
  const agents = await agentsOf(t, {
    providers: { demo: { use: "scripted", retries: 1, models } },
    agents: { assistant: { name: "Assistant", model: ["demo/down", "demo/echo"] } },
  });
  await agents.get("assistant")!.generateText({ input: "hello" }, traced(tracer));
  const { events, status } = spanNamed(sink.only, "chat down");
  assert.deepEqual(
    events!.map(({ name, attributes }) => [name, attributes!["error.type"]]),
    [
      ["model.retry", "unavailable"],
      ["model.fallback", "unavailable"],
    ],
  );
  assert.equal(events![1]!.attributes!["fallback.model"], "demo/echo");
  assert.equal(status.code, 0);
});

test("a client that leaves ends every open span as cancelled", async (t) => {
  const { tracer, sink } = tracing();
  const agent = await assistant(t, { tools: ["wait"] }, ADD);
  const call = traced(tracer);
  const running = agent.generateText({ input: "wait" }, call);
  while ((sink.begun[0]?.spans.length ?? 0) < 3) await sleep(2);
  call.leave();
  await assert.rejects(running);
  assert.deepEqual(treeOf(sink.only), [
    "invoke_agent Assistant ! cancelled",
    "  chat echo",
    "  execute_tool wait ! cancelled",
  ]);
});

test("a client that leaves in the middle of an answer cancels the model call", async (t) => {
  const { tracer, sink } = tracing();
  const agent = await assistant(t, {}, { provider: { chunks: 4, delay: "1h" } });
  const call = traced(tracer);
  const events = new Events();
  const running = (await agent.stream({ input: "one two three four" }, call))(events);
  while (events.list.length < 3) await sleep(2);
  events.closed = true;
  call.leave();
  await running.catch(() => {});
  assert.deepEqual(treeOf(sink.only), ["invoke_agent Assistant ! cancelled", "  chat echo ! cancelled"]);
});

test("a sub-agent's run stands below the call that asked for it, as the run of another agent", async (t) => {
  const { tracer, sink } = tracing();
  const agents = await agentsOf(t, {
    providers: {
      demo: {
        use: "scripted",
        replies: [
          {
            when: "^ask",
            call: { tool: "delegate_task", input: { agentId: "writer", task: "write" } },
            then: "{{ result }}",
          },
        ],
      },
    },
    agents: {
      editor: { name: "Editor", model: "demo/echo", subAgents: ["writer"] },
      writer: { name: "Writer", model: "demo/echo" },
    },
  });
  await agents.get("editor")!.generateText({ input: "ask" }, traced(tracer));
  assert.deepEqual(treeOf(sink.only), [
    "invoke_agent Editor",
    "  chat echo",
    "  execute_tool delegate_task",
    "    invoke_agent Writer",
    "      chat echo",
    "  chat echo",
  ]);
  assert.deepEqual(
    sink.only.map(({ entity }) => entity.id),
    ["editor", "editor", "editor", "writer", "writer", "editor"],
  );
});

test("what a run reads and writes of a conversation is in its trace", async (t) => {
  const { tracer, sink } = tracing();
  const agents = await agentsOf(t, {
    memory: { default: { contextLimit: 5, workingMemory: { scope: "user", format: "markdown" } } },
    providers: {
      demo: {
        use: "scripted",
        replies: [
          { when: "^note", call: { tool: "update_working_memory", input: { content: "likes tea" } }, then: "Noted." },
        ],
      },
    },
    agents: { assistant: { name: "Assistant", model: "demo/echo", memory: "default" } },
  });
  const options = { memory: { conversationId: "c1", userId: "ada" } };
  await agents.get("assistant")!.generateText({ input: "note it", options }, traced(tracer));
  assert.deepEqual(treeOf(sink.only), [
    "invoke_agent Assistant",
    "  memory.recall",
    "  chat echo",
    "  execute_tool update_working_memory",
    "    memory.note",
    "  memory.save",
    "  memory.save",
    "  chat echo",
    "  memory.save",
  ]);
  const { attributes } = spanNamed(sink.only, "memory.recall");
  assert.deepEqual(attributes, { "memory.name": "default", "gen_ai.conversation.id": "c1" });
  assert.equal(sink.begun[0]!.userId, "ada");
  assert.equal(sink.only[0]!.attributes!["gen_ai.conversation.id"], "c1");
});

test("a conversation that belongs to somebody else fails the recall, and the run with it", async (t) => {
  const agents = await agentsOf(t, {
    memory: { default: {} },
    agents: { assistant: { name: "Assistant", model: "demo/echo", memory: "default" } },
  });
  const agent = agents.get("assistant")!;
  await agent.generateText({ input: "mine", options: { memory: { conversationId: "c1", userId: "ada" } } }, caller());
  const { tracer, sink } = tracing();
  const options = { memory: { conversationId: "c1", userId: "bob" } };
  await assert.rejects(agent.generateText({ input: "yours", options }, traced(tracer)));
  assert.deepEqual(
    sink.only.map(({ name, status }) => [name, status.code]),
    [
      ["invoke_agent Assistant", 2],
      ["memory.recall", 2],
    ],
  );
});

test("a run that is not traced has no trace in its history", async (t) => {
  const agent = await assistant(t);
  await agent.generateText({ input: "hello" }, caller());
  const { entries } = await historyOf(agent, 0, 1);
  assert.ok(!("traceId" in entries[0]!));
});
