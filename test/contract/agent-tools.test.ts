/** Contract, "Agents": tools, steps, structured output beside tools, and sub-agents, against a real upstream. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { FIXTURES } from "../support/fixtures.ts";
import { calls, says, saysJson } from "../support/openai-upstream.ts";
import { dataOf, errorOf, type Loose, serveUpstream } from "../support/served-upstream.ts";

const TEXT = "/agents/assistant/text";
const TOOLS = { sum: { use: "add" }, meet: { use: "meet" }, fail: { use: "fail" }, whoami: { use: "whoami" } };
const ALL = { tools: Object.keys(TOOLS) };

type Test = Parameters<typeof serveUpstream>[0];
const serve = (t: Test, agent: object = ALL, rest: Record<string, unknown> = {}) =>
  serveUpstream(t, agent, { tools: TOOLS, ...rest }, { plugins: [FIXTURES] });

/** What the model was told of tool results in its last call. */
const told = (body: Loose) => body.messages.filter(({ role }: Loose) => role === "tool");

describe("tools of an agent", () => {
  test("POST /agents/:id/text offers the agent's tools with their schemas, by their names in the manifest", async (t) => {
    const { service, upstream } = await serve(t, { tools: ["sum"] });
    await dataOf(service.post(TEXT, { input: "x" }));
    const [tool, ...others] = upstream.requests[0]!.body.tools;
    assert.equal(others.length, 0);
    assert.equal(tool.function.name, "sum");
    assert.equal(tool.function.description, "Adds two numbers");
    assert.deepEqual(tool.function.parameters.required, ["a", "b"]);
    assert.equal(upstream.requests[0]!.body.tool_choice, "auto");
  });

  test("POST /agents/:id/text runs a call and gives its result to the model in the next step", async (t) => {
    const { service, upstream } = await serve(t);
    upstream.replies(calls([{ id: "c1", name: "sum", input: { a: 2, b: 3 } }]), says("Five."));
    assert.equal((await dataOf(service.post(TEXT, { input: "2+3" }))).text, "Five.");
    assert.deepEqual(upstream.requests[1]!.body.messages.slice(1), [
      { role: "user", content: "2+3" },
      {
        role: "assistant",
        content: null,
        tool_calls: [{ id: "c1", type: "function", function: { name: "sum", arguments: '{"a":2,"b":3}' } }],
      },
      { role: "tool", tool_call_id: "c1", content: '{"sum":5}' },
    ]);
  });

  test("POST /agents/:id/text runs the calls of one step at once, and answers in the order of the calls", {
    timeout: 60_000,
  }, async (t) => {
    const { service, upstream } = await serve(t);
    const people = ["ada", "bob", "cy"].map((name, index) => ({
      id: name,
      name: "meet",
      input: { people: 3, name, after: 30 - index * 10 },
    }));
    upstream.replies(calls(people), says("All met."));
    const { toolResults } = await dataOf(service.post(TEXT, { input: "meet" }));
    assert.deepEqual(
      toolResults.map(({ output }: Loose) => output.met),
      ["ada", "bob", "cy"],
    );
    assert.deepEqual(
      told(upstream.requests[1]!.body).map((message: Loose) => message.tool_call_id),
      ["ada", "bob", "cy"],
    );
  });

  const FAILURES: [title: string, call: { name: string; input: unknown }, message: RegExp][] = [
    ["a tool that throws", { name: "fail", input: {} }, /^the shop is closed$/],
    ["a tool that rejects", { name: "fail", input: { how: "later" } }, /^the shop burned down$/],
    ["a tool that throws nothing", { name: "fail", input: { how: "nothing" } }, /^tool "fail" failed$/],
    [
      "a tool that does not exist",
      { name: "fly", input: {} },
      /^there is no tool "fly"; the tools are sum, meet, fail, whoami$/,
    ],
    [
      "input that does not fit",
      { name: "sum", input: { a: "two" } },
      /input\.a must be number.*input\.b is required|input\.b is required.*input\.a must be number/,
    ],
  ];
  for (const [title, call, message] of FAILURES) {
    test(`POST /agents/:id/text: ${title} is told to the model, which goes on`, async (t) => {
      const { service, upstream } = await serve(t);
      upstream.replies(
        calls([
          { ...call, id: "bad" },
          { id: "good", name: "sum", input: { a: 1, b: 1 } },
        ]),
        says("Sorry."),
      );
      const data = await dataOf(service.post(TEXT, { input: "x" }));
      assert.equal(data.text, "Sorry.");
      assert.deepEqual(
        data.toolCalls.map(({ toolCallId }: Loose) => toolCallId),
        ["bad", "good"],
      );
      assert.deepEqual(
        data.toolResults.map(({ toolCallId }: Loose) => toolCallId),
        ["good"],
        "a failure is no result",
      );
      const [bad, good] = told(upstream.requests[1]!.body);
      assert.match(bad.content, message);
      assert.equal(good.content, '{"sum":2}');
    });
  }

  test("POST /agents/:id/text hands options.context and the conversation to the tools, and no more than is there", async (t) => {
    const { service, upstream } = await serve(t);
    upstream.replies(calls([{ name: "whoami", input: { a: 1 } }]), says("You."));
    const options = { context: { language: "pt" }, memory: { conversationId: "c-7" } };
    const reply = await service.post(TEXT, { input: "x", options }, { "x-request-id": "req-9" });
    const { output } = (await dataOf(reply)).toolResults[0];
    assert.deepEqual(output, {
      input: { a: 1 },
      user: null,
      context: { language: "pt" },
      requestId: "req-9",
      conversationId: "c-7",
    });
  });

  test("POST /agents/:id/text: a tool that needs approval does not run: the reply says what waits, and the model is not called again", async (t) => {
    const { service, upstream } = await serve(
      t,
      { tools: ["guarded"] },
      { tools: { guarded: { use: "add", approval: true } } },
    );
    upstream.replies(calls([{ name: "guarded", input: { a: 1, b: 1 } }]));
    const { toolResults, approvals, finishReason } = await dataOf(service.post(TEXT, { input: "x" }));
    assert.deepEqual([toolResults, approvals.length, finishReason], [[], 1, "tool-calls"]);
    assert.equal(upstream.requests.length, 1);
  });
});

describe("maxSteps", () => {
  const ROWS: [title: string, agent: object, options: object | undefined, steps: number][] = [
    ["is 5 when nobody says", ALL, undefined, 5],
    ["is the agent's", { ...ALL, maxSteps: 2 }, undefined, 2],
    ["is the request's before the agent's", { ...ALL, maxSteps: 2 }, { maxSteps: 3 }, 3],
    ["of 1 is one model call", ALL, { maxSteps: 1 }, 1],
  ];
  for (const [title, agent, options, steps] of ROWS) {
    test(`POST /agents/:id/text: maxSteps ${title}; the last step's calls have run`, async (t) => {
      const { service, upstream } = await serve(t, agent);
      upstream.fallback(calls([{ name: "sum", input: { a: 1, b: 1 } }]));
      const data = await dataOf(service.post(TEXT, { input: "for ever", options }));
      assert.equal(upstream.requests.length, steps);
      assert.equal(data.toolResults.length, steps);
      assert.equal(data.finishReason, "tool-calls");
    });
  }
});

describe("options.output", () => {
  const schema = { type: "object", properties: { total: { type: "number" } }, required: ["total"] };
  const output = { type: "object", schema };

  test("POST /agents/:id/text: with a schema the result is in output, and the tools stay available", async (t) => {
    const { service, upstream } = await serve(t);
    upstream.replies(calls([{ name: "sum", input: { a: 2, b: 3 } }]), saysJson({ total: 5 }));
    const data = await dataOf(service.post(TEXT, { input: "2+3", options: { output } }));
    assert.deepEqual(data.output, { total: 5 });
    assert.equal(data.text, '{"total":5}');
    assert.equal(data.toolResults.length, 1);
    for (const { body } of upstream.requests) {
      assert.equal(body.tools.length, 4);
      assert.deepEqual(body.response_format.json_schema.schema, schema);
    }
  });

  test("POST /agents/:id/text: `{type: text}` makes output the text; without options.output there is none", async (t) => {
    const { service } = await serve(t);
    assert.equal((await dataOf(service.post(TEXT, { input: "x", options: { output: { type: "text" } } }))).output, "x");
    assert.ok(!("output" in (await dataOf(service.post(TEXT, { input: "x" })))));
  });

  test("POST /agents/:id/text: an answer that does not fit gets one more try, then it is 500", async (t) => {
    const { service, upstream } = await serve(t);
    upstream.replies(saysJson({ total: "five" }), saysJson({ total: 5 }), says("no"), says("never"));
    assert.deepEqual((await dataOf(service.post(TEXT, { input: "x", options: { output } }))).output, { total: 5 });
    assert.match(upstream.requests[1]!.lastUserText, /result\.total must be number/);
    const reply = await service.post(TEXT, { input: "x", options: { output } });
    assert.equal(reply.headers.get("x-error-code"), "provider_failed");
    const { status, error } = await errorOf(reply);
    assert.equal(status, 500);
    assert.match(error, /does not fit the schema/);
    assert.equal(upstream.requests.length, 4);
  });

  test("POST /agents/:id/text: a schema that does not compile is 400 and named", async (t) => {
    const { service, upstream } = await serve(t);
    const bad = { type: "object", schema: { type: "wizard" } };
    const { status, error } = await errorOf(service.post(TEXT, { input: "x", options: { output: bad } }));
    assert.equal(status, 400);
    assert.match(error, /^options\.output\.schema does not compile/);
    assert.equal(upstream.requests.length, 0);
  });
});

describe("sub-agents", () => {
  const WRITER = {
    writer: {
      name: "Writer",
      description: "Writes prose",
      instructions: "Write.",
      model: "up/writer-model",
      memory: false,
    },
  };

  test("POST /agents/:id/text offers them as one tool, delegate_task {agentId, task}, and gives their text back", async (t) => {
    const { service, upstream } = await serve(t, { subAgents: ["writer"] }, { agents: WRITER });
    upstream.replies(
      calls([{ name: "delegate_task", input: { agentId: "writer", task: "Write a poem" } }]),
      says("Roses are red."),
      says("Here it is."),
    );
    const data = await dataOf(service.post(TEXT, { input: "A poem" }));
    const [asked, delegated, answered] = upstream.requests.map(({ body }) => body);
    const [{ function: tool }] = asked.tools;
    assert.equal(tool.name, "delegate_task");
    assert.match(tool.description, /writer \(Writer\): Writes prose/);
    assert.deepEqual(tool.parameters.properties.agentId.enum, ["writer"]);
    assert.deepEqual(tool.parameters.required, ["agentId", "task"]);
    assert.equal(delegated.model, "writer-model");
    assert.deepEqual(delegated.messages, [
      { role: "system", content: "Write." },
      { role: "user", content: "Write a poem" },
    ]);
    assert.equal(told(answered)[0].content, "Roses are red.");
    assert.equal(data.text, "Here it is.");
    assert.equal(data.toolResults[0].output, "Roses are red.");
    const { entries } = await dataOf(service.get("/agents/writer/history"));
    assert.deepEqual([entries[0].input, entries[0].output], ["Write a poem", "Roses are red."]);
  });

  test("POST /agents/:id/text: a task for an agent that is not its sub-agent is refused and told to the model", async (t) => {
    const { service, upstream } = await serve(t, { subAgents: ["writer"] }, { agents: WRITER });
    upstream.replies(calls([{ name: "delegate_task", input: { agentId: "assistant", task: "x" } }]), says("Well."));
    await dataOf(service.post(TEXT, { input: "x" }));
    assert.equal(told(upstream.requests[1]!.body)[0].content, 'input.agentId must be one of "writer"');
    assert.equal((await dataOf(service.get("/agents/assistant/history"))).total, 1);
  });
});

describe("options.context", () => {
  const agents = {
    dynamic: {
      instructions: "Answer in {{ has(context.language) ? context.language : 'English' }}.",
      model: "{{ has(context.tier) ? context.tier : 'up/small' }}",
      tools: ["sum", { use: "whoami", if: "has(context.staff) && context.staff" }],
      memory: false,
    },
  };
  const DYNAMIC = "/agents/dynamic/text";

  test("POST /agents/:id/text adapts instructions, model and tools to options.context", async (t) => {
    const { service, upstream } = await serve(t, {}, { agents });
    const seen = async (context?: object) => {
      await dataOf(service.post(DYNAMIC, { input: "x", options: { context } }));
      const { messages, model, tools } = upstream.requests.at(-1)!.body;
      return [messages[0].content, model, ...tools.map((tool: Loose) => tool.function.name)];
    };
    assert.deepEqual(await seen(), ["Answer in English.", "small", "sum"]);
    assert.deepEqual(await seen({ language: "Dutch" }), ["Answer in Dutch.", "small", "sum"]);
    assert.deepEqual(await seen({ tier: "up/large", staff: true }), ["Answer in English.", "large", "sum", "whoami"]);
    assert.deepEqual(await seen({ staff: false }), ["Answer in English.", "small", "sum"]);
  });

  for (const [title, context] of [
    ["a model that is not known", { tier: "nowhere/large" }],
    ["something that is no name", { tier: 5 }],
    ["a condition that is neither true nor false", { staff: "yes" }],
  ] as const) {
    test(`POST /agents/:id/text: a context that chooses ${title} is 400`, async (t) => {
      const { service, upstream } = await serve(t, {}, { agents });
      const { status, error } = await errorOf(service.post(DYNAMIC, { input: "x", options: { context } }));
      assert.equal(status, 400, error);
      assert.equal(upstream.requests.length, 0);
    });
  }
});
