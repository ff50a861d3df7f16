/** `client: true` on a tool: its calls end the answer, and what the client posts for them continues it. */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { FIXTURES } from "../support/fixtures.ts";
import { calls, failsAfter, failure, says } from "../support/openai-upstream.ts";
import { dataOf, errorOf, type Loose, serveUpstream } from "../support/served-upstream.ts";
import { parseEvents, type TestService } from "../support/service.ts";

const PARAMETERS = { type: "object", properties: { question: { type: "string" } }, required: ["question"] };
const CONFIRM = { client: true, description: "Asks the user", parameters: PARAMETERS, tags: ["ask"] };
const TOOLS = { sum: { use: "add" }, confirm: CONFIRM };
const INPUT = { question: "Really?" };
const ASKS = { id: "c1", name: "confirm", input: INPUT };
const SUMS = { id: "c2", name: "sum", input: { a: 1, b: 2 } };
const TEXT = "/agents/assistant/text";

const serve = (t: TestContext, agent: object = {}, rest: object = {}) =>
  serveUpstream(
    t,
    { tools: Object.keys(TOOLS), ...agent },
    { tools: TOOLS, memory: { chats: {} }, ...rest },
    { plugins: [FIXTURES] },
  );

const answer = (toolCallId: string, output: unknown) => ({
  role: "tool",
  content: [{ type: "tool-result", toolCallId, toolName: "confirm", output }],
});

test("POST /agents/:id/text lists a call of a client-side tool without a result, and goes on from the posted one", async (t) => {
  const { service, upstream } = await serve(t);
  upstream.replies(calls([ASKS, SUMS]), says("Done."));
  const first = await dataOf(service.post(TEXT, { input: "Add and ask" }));
  assert.equal(first.finishReason, "tool-calls");
  assert.deepEqual(
    first.toolCalls.map(({ toolCallId }: Loose) => toolCallId),
    ["c1", "c2"],
  );
  assert.deepEqual(
    first.toolResults.map(({ toolCallId }: Loose) => toolCallId),
    ["c2"],
  );
  assert.equal(upstream.requests.length, 1);

  const input = [
    { role: "user", content: "Add and ask" },
    { role: "assistant", content: first.toolCalls },
    { role: "tool", content: [...answer("c1", { ok: true }).content, ...first.toolResults] },
  ];
  const second = await dataOf(service.post(TEXT, { input }));
  assert.equal(second.text, "Done.");
  assert.deepEqual(
    upstream.requests[1]!.body.messages.slice(-2).map(({ content }: Loose) => content),
    ['{"ok":true}', '{"sum":3}'],
  );
});

test("POST /agents/:id/stream ends with the call of a client-side tool: finishReason tool-calls, and no result", async (t) => {
  const { service, upstream } = await serve(t);
  upstream.replies(calls([ASKS]));
  const reply = await service.post("/agents/assistant/stream", { input: "Ask" });
  const parts = parseEvents(await reply.text()).flatMap(({ data }) => (data.startsWith("{") ? [JSON.parse(data)] : []));
  const types = parts.map(({ type }) => type).filter((type) => !type.startsWith("tool-input"));
  assert.deepEqual(types, ["start", "start-step", "tool-call", "finish-step", "finish"]);
  assert.equal(parts.at(-1).finishReason, "tool-calls");
});

test("POST /agents/:id/text with a memory completes the stored answer with a result that is posted alone", async (t) => {
  const { service, upstream } = await serve(t, { memory: "chats" });
  upstream.replies(calls([ASKS]), says("Done."), says("Bye."));
  const options = { memory: { userId: "ada", conversationId: "one" } };
  const messages = async () => (await dataOf(service.get("/api/memory/conversations/one/messages"))).messages;
  await dataOf(service.post(TEXT, { input: "Delete it", options }));
  const [, open] = await messages();
  assert.equal(open.parts.find(({ toolCallId }: Loose) => toolCallId === "c1").state, "input-available");

  const refused = await errorOf(service.post(TEXT, { input: [answer("c9", 1)], options }));
  assert.deepEqual(refused, { status: 400, error: 'input: the call "c9" is not open in the conversation' });

  await dataOf(service.post(TEXT, { input: [answer("c1", { ok: true })], options }));
  assert.deepEqual(
    upstream.requests[1]!.body.messages.map(({ role, content }: Loose) => [role, content]),
    [
      ["system", "Help."],
      ["user", "Delete it"],
      ["assistant", null],
      ["tool", '{"ok":true}'],
    ],
  );
  const [, completed, ...more] = await messages();
  assert.deepEqual(more, []);
  assert.equal(completed.id, open.id);
  assert.deepEqual(
    completed.parts.map(({ type, state, output }: Loose) => [type, state, output]),
    [
      ["step-start", undefined, undefined],
      ["tool-confirm", "output-available", { ok: true }],
      ["step-start", undefined, undefined],
      ["text", "done", undefined],
    ],
  );
  const again = await errorOf(service.post(TEXT, { input: [answer("c1", { ok: true })], options }));
  assert.equal(again.status, 400);
  await dataOf(service.post(TEXT, { input: "Thanks", options }));
  assert.equal(upstream.requests.at(-1)!.body.messages.at(-1).content, "Thanks");
});

test("POST /agents/:id/text: a call that the client leaves unanswered does not hinder the next message", async (t) => {
  const { service, upstream } = await serve(t, { memory: "chats" });
  upstream.replies(calls([ASKS]), says("As you like."));
  const options = { memory: { userId: "ada", conversationId: "one" } };
  await dataOf(service.post(TEXT, { input: "Delete it", options }));
  await dataOf(service.post(TEXT, { input: "Never mind", options }));
  const [tool, user] = upstream.requests[1]!.body.messages.slice(-2);
  assert.deepEqual([tool.role, tool.tool_call_id, user.content], ["tool", "c1", "Never mind"]);
});

test("POST /agents/:id/text: invalid input of a client-side tool goes back to the model, not to the client", async (t) => {
  const { service, upstream } = await serve(t);
  upstream.replies(calls([{ ...ASKS, input: {} as typeof INPUT }]), calls([{ ...ASKS, id: "c2" }]));
  const reply = await dataOf(service.post(TEXT, { input: "Ask" }));
  assert.equal(reply.toolCalls.at(-1).toolCallId, "c2");
  assert.match(upstream.requests[1]!.body.messages.at(-1).content, /input\.question is required/);
});

test("GET /tools and the agents mark client-side tools, and POST /tools/:name/execute of one is 409 and says why", async (t) => {
  const { service } = await serve(t);
  const tools = await dataOf(service.get("/tools"));
  assert.deepEqual(
    tools.map(({ name, client }: Loose) => [name, client]),
    [
      ["sum", undefined],
      ["confirm", true],
    ],
  );
  const [agent] = await dataOf(service.get("/agents"));
  assert.deepEqual(
    agent.tools.map(({ name, client }: Loose) => [name, client]),
    [
      ["sum", undefined],
      ["confirm", true],
    ],
  );
  assert.deepEqual(await errorOf(service.post("/tools/confirm/execute", { input: INPUT })), {
    status: 409,
    error: 'tool "confirm" runs in the client of an agent: it cannot run here',
  });
});

test("a client-side tool of an agent that no client reads, a sub-agent or one in a workflow, fails and tells the model why", async (t) => {
  const agent = { name: "Clerk", description: "Files", model: "up/test-model", tools: ["confirm"] };
  const { service, upstream } = await serve(
    t,
    { subAgents: ["clerk"] },
    {
      agents: { clerk: agent },
      workflows: { w: { steps: [{ id: "a", andAgent: { agent: "clerk", prompt: "File" } }] } },
    },
  );
  upstream.replies(
    calls([{ id: "d1", name: "delegate_task", input: { agentId: "clerk", task: "File it" } }]),
    calls([ASKS]),
    says("Could not ask."),
    says("It could not ask."),
  );
  assert.equal((await dataOf(service.post(TEXT, { input: "File" }))).text, "It could not ask.");
  assert.match(upstream.requests[2]!.body.messages.at(-1).content, /"confirm" runs in the client of an agent/);

  upstream.replies(calls([ASKS]), says("Could not ask."));
  const execution = await dataOf(service.post("/workflows/w/execute", { input: {} }));
  assert.deepEqual(execution.result ?? execution.output, { text: "Could not ask." });
});

const options = { memory: { userId: "ada", conversationId: "one" } };

test("POST /agents/:id/text shows the model as much of a client-side tool's result as the tool's toolOutput says", async (t) => {
  const tools = { ...TOOLS, confirm: { ...CONFIRM, toolOutput: 300 } };
  const { service, upstream } = await serve(t, { memory: "chats" }, { tools });
  upstream.replies(calls([ASKS]), says("Done."));
  await dataOf(service.post(TEXT, { input: "Ask", options }));
  await dataOf(service.post(TEXT, { input: [answer("c1", "x".repeat(5000))], options }));
  assert.ok(upstream.requests[1]!.body.messages.at(-1).content.length < 500);
});

for (const contextLimit of [0, 1]) {
  test(`POST /agents/:id/text with a result that is posted alone goes on from its call with a contextLimit of ${contextLimit}`, async (t) => {
    const { service, upstream } = await serve(t, { memory: "chats" });
    upstream.replies(says("Hello."), calls([ASKS]), says("Done."));
    for (const input of ["Hello", "Delete it"]) await dataOf(service.post(TEXT, { input, options }));
    const limited = { memory: { ...options.memory, options: { contextLimit } } };
    const { text } = await dataOf(service.post(TEXT, { input: [answer("c1", "yes")], options: limited }));
    assert.equal(text, "Done.");
    assert.deepEqual(
      upstream.requests.at(-1)!.body.messages.map(({ role }: Loose) => role),
      ["system", "user", "assistant", "tool"],
    );
  });
}

test("POST /agents/:id/text: a result whose run fails can be posted again, and the answer goes on from it", async (t) => {
  const { service, upstream } = await serve(t, { memory: "chats" });
  upstream.replies(calls([ASKS]), failure(400), failsAfter("Half an"), calls([SUMS]), failure(400), says("Done."));
  await dataOf(service.post(TEXT, { input: "Delete it", options }));
  const result = { input: [answer("c1", { ok: true })], options };
  for (const why of ["before it says anything", "after some words", "after a call of its own"])
    assert.equal((await service.post(TEXT, result)).status, 500, why);
  assert.equal((await dataOf(service.post(TEXT, result))).text, "Done.");
  const { messages } = await dataOf(service.get("/api/memory/conversations/one/messages"));
  assert.deepEqual(
    messages[1].parts.map(({ type, state }: Loose) => [type, state]),
    [
      ["step-start", undefined],
      ["tool-confirm", "output-available"],
      ["step-start", undefined],
      ["text", "done"],
    ],
  );
});

for (const [how, agent, settings] of [
  ["of an agent without a memory", {}, undefined],
  ["of an agent with a memory in no conversation", { memory: "chats" }, undefined],
  ["before an answer", { memory: "chats" }, options],
] as const) {
  test(`POST /agents/:id/text with a result ${how} whose call is not in the request is 400 and names the field`, async (t) => {
    const { service, upstream } = await serve(t, agent);
    const next = { role: settings === undefined ? "user" : "assistant", content: "Well?" };
    const input = [{ role: "user", content: "Delete it" }, answer("c1", 1), next];
    assert.deepEqual(await errorOf(service.post(TEXT, { input, options: settings })), {
      status: 400,
      error: 'input[1].content[0].toolCallId: there is no call "c1" to which this is the result',
    });
    assert.equal(upstream.requests.length, 0);
  });
}

test("POST /agents/:id/text takes a client's own history with a call that nobody has answered, and tells the model so", async (t) => {
  const { service, upstream } = await serve(t);
  upstream.replies(calls([ASKS, SUMS]), says("As you like."));
  const first = await dataOf(service.post(TEXT, { input: "Ask" }));
  const input = [
    { role: "user", content: "Ask" },
    { role: "assistant", content: first.toolCalls },
    { role: "tool", content: first.toolResults },
    { role: "user", content: "Never mind" },
  ];
  await dataOf(service.post(TEXT, { input }));
  assert.deepEqual(
    upstream.requests[1]!.body.messages.slice(2).map(({ role, tool_call_id: id }: Loose) => [role, id]),
    [
      ["assistant", undefined],
      ["tool", "c1"],
      ["tool", "c2"],
      ["user", undefined],
    ],
  );
});

test("POST /agents/:id/text with a client's own history and the result of a call that is stored completes the stored answer", async (t) => {
  const { service, upstream } = await serve(t, { memory: "chats" });
  upstream.replies(calls([ASKS]), says("Done."), says("Bye."));
  const { toolCalls } = await dataOf(service.post(TEXT, { input: "Delete it", options }));
  const input = [
    { role: "user", content: "Delete it" },
    { role: "assistant", content: toolCalls },
    answer("c1", "yes"),
  ];
  await dataOf(service.post(TEXT, { input, options }));
  const said = (index: number) =>
    upstream.requests[index]!.body.messages.slice(1).map(({ role, content }: Loose) => [role, content]);
  const turn = [
    ["user", "Delete it"],
    ["assistant", null],
    ["tool", "yes"],
  ];
  assert.deepEqual(said(1), turn);
  await dataOf(service.post(TEXT, { input: "Thanks", options }));
  assert.deepEqual(said(2), [...turn, ["assistant", "Done."], ["user", "Thanks"]]);
});

test("POST /agents/:id/text with one result twice at once takes it once, refuses the other, and stores one answer with the call completed", async (t) => {
  const { service, upstream } = await serve(t, { memory: "chats" });
  upstream.replies(calls([ASKS]), says("Done.", { delay: 30 }));
  await dataOf(service.post(TEXT, { input: "Delete it", options }));
  const result = { input: [answer("c1", "yes")], options };
  const replies = await Promise.all([1, 2].map(() => service.post(TEXT, result)));
  assert.deepEqual(replies.map(({ status }) => status).sort(), [200, 400]);
  assert.equal(upstream.requests.length, 2);
  const { messages } = await dataOf(service.get("/api/memory/conversations/one/messages"));
  assert.deepEqual(
    messages.map(({ role, parts }: Loose) => [role, parts.at(-1).text]),
    [
      ["user", "Delete it"],
      ["assistant", "Done."],
    ],
  );
});

test("POST /agents/:id/text with a client-side tool and options.output ends with the call, and has the output once the result is posted", async (t) => {
  const { service, upstream } = await serve(t, { memory: "chats" });
  upstream.replies(calls([ASKS]), says('{"ok":true}'));
  const schema = { type: "object", properties: { ok: { type: "boolean" } }, required: ["ok"] };
  const asked = { ...options, output: { type: "object", schema } };
  const first = await dataOf(service.post(TEXT, { input: "Delete it", options: asked }));
  assert.deepEqual([first.finishReason, first.output, upstream.requests.length], ["tool-calls", undefined, 1]);
  const second = await dataOf(service.post(TEXT, { input: [answer("c1", "yes")], options: asked }));
  assert.deepEqual(second.output, { ok: true });
});

test("POST /agents/:id/text: a run at its maxSteps leaves the calls of its last step to the client", async (t) => {
  const { service, upstream } = await serve(t, { memory: "chats" });
  upstream.replies(calls([SUMS]), calls([ASKS]), says("Done."));
  const limited = { ...options, maxSteps: 2 };
  const first = await dataOf(service.post(TEXT, { input: "Add, then ask", options: limited }));
  assert.equal(first.finishReason, "tool-calls");
  const { text } = await dataOf(service.post(TEXT, { input: [answer("c1", "yes")], options: limited }));
  assert.equal(text, "Done.");
});

const SECOND = { id: "c3", name: "confirm", input: { question: "And that?" } };

for (const memory of [false, "chats"] as const) {
  test(`POST /agents/:id/text ${memory ? "with" : "without"} a memory asks the model once, when the results of all calls of client-side tools are there`, async (t) => {
    const { service, upstream } = await serve(t, { memory });
    upstream.replies(calls([ASKS, SUMS, SECOND]), says("Done."));
    const settings = memory === false ? {} : options;
    const { toolCalls, toolResults } = await dataOf(service.post(TEXT, { input: "Delete it", options: settings }));
    const history = [
      { role: "user", content: "Delete it" },
      { role: "assistant", content: toolCalls },
      { role: "tool", content: toolResults },
    ];
    const post = (...results: object[]) =>
      dataOf(service.post(TEXT, { input: memory === false ? [...history, ...results] : results, options: settings }));
    const first = answer("c1", "yes");
    const waiting = await post(first);
    assert.deepEqual([waiting.finishReason, waiting.text, upstream.requests.length], ["tool-calls", "", 1]);
    const last = memory === false ? await post(first, answer("c3", "no")) : await post(answer("c3", "no"));
    assert.deepEqual([last.finishReason, last.text, upstream.requests.length], ["stop", "Done.", 2]);
    assert.deepEqual(
      upstream.requests[1]!.body.messages.slice(-3)
        .map((told: Loose) => [told.tool_call_id, told.content])
        .sort(),
      [
        ["c1", "yes"],
        ["c2", '{"sum":3}'],
        ["c3", "no"],
      ],
    );
    if (memory === false) return;
    const { messages } = await dataOf(service.get("/api/memory/conversations/one/messages"));
    assert.deepEqual(
      messages[1].parts.map(({ state, output }: Loose) => [state, output]),
      [
        [undefined, undefined],
        ["output-available", { sum: 3 }],
        ["output-available", "yes"],
        ["output-available", "no"],
        [undefined, undefined],
        ["done", undefined],
      ],
    );
    assert.equal(messages.length, 2);
  });
}

test("POST /agents/:id/text: of two results that are posted at the same time the later one asks the model, once", async (t) => {
  const { service, upstream } = await serve(t, { memory: "chats" });
  upstream.replies(calls([ASKS, SECOND]), says("Done."));
  await dataOf(service.post(TEXT, { input: "Delete it", options }));
  const replies = await Promise.all(
    ["c1", "c3"].map((id) => dataOf(service.post(TEXT, { input: [answer(id, "yes")], options }))),
  );
  assert.deepEqual(replies.map(({ text }) => text).sort(), ["", "Done."]);
  assert.equal(upstream.requests.length, 2);
});

test("POST /agents/:id/text: a message of the user goes before the calls that its client has not answered, of which the model is told", async (t) => {
  const { service, upstream } = await serve(t, { memory: "chats" });
  upstream.replies(calls([ASKS, SECOND]), says("As you like."));
  await dataOf(service.post(TEXT, { input: "Delete it", options }));
  await dataOf(service.post(TEXT, { input: [answer("c1", "yes")], options }));
  assert.equal((await dataOf(service.post(TEXT, { input: "Never mind", options }))).text, "As you like.");
  assert.deepEqual(
    upstream.requests[1]!.body.messages.slice(-3).map(({ content }: Loose) => content),
    ["yes", "The call was not completed.", "Never mind"],
  );
});

for (const key of [undefined, "a-key"]) {
  test(`POST /agents/:id/chat and /stream ${key === undefined ? "" : "of a kept run "}end with tool-calls, and store the result, while other calls of client-side tools are open`, async (t) => {
    const { service, upstream } = await serve(t, { memory: "chats" });
    upstream.replies(calls([ASKS, SECOND]), says("Done."));
    const post = async (door: string, body: object, number: number): Promise<Loose[]> => {
      const headers: Record<string, string> = key === undefined ? {} : { "idempotency-key": `${key}-${number}` };
      const reply = await service.post(`/agents/assistant/${door}`, body, headers);
      return parseEvents(await reply.text()).flatMap(({ data }) => (data.startsWith("{") ? [JSON.parse(data)] : []));
    };
    const messages = async () => (await dataOf(service.get("/api/memory/conversations/one/messages"))).messages;
    await post("stream", { input: "Delete it", options }, 1);
    const [user, asked] = await messages();
    const shown = asked.parts.map((part: Loose) =>
      part.toolCallId === "c1" ? { ...part, state: "output-available", output: "yes" } : part,
    );
    const chunks = await post("chat", { messages: [user, { ...asked, parts: shown }], options }, 2);
    assert.deepEqual(chunks, [
      { type: "start", messageId: asked.id },
      { type: "finish", finishReason: "tool-calls" },
    ]);
    const [, stored, ...more] = await messages();
    assert.deepEqual(
      stored.parts.map(({ state }: Loose) => state),
      [undefined, "output-available", "input-available"],
    );
    assert.deepEqual([stored.id, more, upstream.requests.length], [asked.id, [], 1]);
    const parts = await post("stream", { input: [answer("c3", "no")], options }, 3);
    assert.deepEqual([parts.at(-1).finishReason, upstream.requests.length], ["stop", 2]);
    assert.deepEqual(
      upstream.requests[1]!.body.messages.slice(-2).map(({ content }: Loose) => content),
      ["yes", "no"],
    );
  });
}

test("POST /agents/:id/ag-ui names the calls that are open when the client posts the result of another, and asks the model with the last one", async (t) => {
  const { service, upstream } = await serve(t, { memory: "chats" });
  upstream.replies(calls([ASKS, SECOND]), says("Done."));
  const post = async (...results: object[]): Promise<Loose> => {
    const toolCalls = [ASKS, SECOND].map(({ id, name, input }) => ({
      id,
      type: "function",
      function: { name, arguments: JSON.stringify(input) },
    }));
    const asked = results.length === 0 ? [] : [{ id: "a1", role: "assistant", toolCalls }, ...results];
    const messages = [{ id: "u1", role: "user", content: "Delete it" }, ...asked];
    const body = {
      threadId: "one",
      runId: `r${results.length}`,
      protocolVersion: "1.0",
      messages,
      tools: [],
      context: [],
    };
    const reply = await service.post("/agents/assistant/ag-ui", body);
    return parseEvents(await reply.text())
      .map(({ data }) => JSON.parse(data))
      .at(-1);
  };
  const result = (id: string) => ({ id: `t-${id}`, role: "tool", toolCallId: id, content: "yes" });
  assert.deepEqual((await post()).outcome.pendingToolCallIds, ["c1", "c3"]);
  assert.deepEqual((await post(result("c1"))).outcome.pendingToolCallIds, ["c3"]);
  assert.equal(upstream.requests.length, 1);
  assert.deepEqual((await post(result("c1"), result("c3"))).outcome, { type: "success" });
  assert.equal(upstream.requests.length, 2);
});

const quick = { role: "user", content: "And be quick" };
const storedTexts = async (service: TestService, conversation = "one") =>
  (await dataOf(service.get(`/api/memory/conversations/${conversation}/messages`))).messages.map(
    ({ role, parts }: Loose) => [
      role,
      ...parts.flatMap(({ text, toolCallId, output }: Loose) => text ?? (toolCallId ? [output ?? null] : [])),
    ],
  );

for (const [order, input] of [
  ["a result that is posted alone, and words of the user behind it", [answer("c1", "yes"), quick]],
  ["a result that is posted alone, and words that the user typed before it", [quick, answer("c1", "yes")]],
] as const)
  for (const [door, key] of [
    ["text", undefined],
    ["stream", undefined],
    ["stream", "kept"],
    ["chat", undefined],
  ] as const)
    test(`POST /agents/:id/${door}${key === undefined ? "" : " of a kept run"} with ${order}, completes the stored answer and answers the words in a turn of their own`, async (t) => {
      const { service, upstream } = await serve(t, { memory: "chats" });
      upstream.replies(calls([ASKS, SECOND]), failure(400), says("Done."), says("Bye."));
      await dataOf(service.post(TEXT, { input: "Delete it", options }));
      const post = async (name: string) => {
        const headers: Record<string, string> = key === undefined ? {} : { "idempotency-key": name };
        const body = door === "chat" ? { messages: input, options } : { input, options };
        return (await service.post(`/agents/assistant/${door}`, body, headers)).text();
      };
      // A run that fails before it has said anything leaves the call open.
      assert.match(await post("first"), /refused the request/);
      assert.match(await post("second"), /Done\./);
      assert.deepEqual(
        upstream.requests[2]!.body.messages.slice(1).map(({ role, content }: Loose) => [role, content]),
        [
          ["user", "Delete it"],
          ["assistant", null],
          ["tool", "yes"],
          ["tool", "The call was not completed."],
          ["user", "And be quick"],
        ],
      );
      assert.deepEqual(await storedTexts(service), [
        ["user", "Delete it"],
        ["assistant", "yes", null],
        ["user", "And be quick"],
        ["assistant", "Done."],
      ]);
      await dataOf(service.post(TEXT, { input: "Thanks", options }));
      assert.deepEqual(
        upstream.requests
          .at(-1)!
          .body.messages.slice(3)
          .map(({ content }: Loose) => content),
        ["yes", "The call was not completed.", "And be quick", "Done.", "Thanks"],
      );
    });

for (const isNew of [true, false])
  test(`POST /agents/:id/text with a call, its result and words of the user stores the result ${isNew ? "in a conversation that begins with them" : "in the answer of the conversation"}`, async (t) => {
    const { service, upstream } = await serve(t, { memory: "chats" });
    upstream.replies(calls([ASKS]), says("Done."), says("Bye."));
    const settings = isNew ? { memory: { ...options.memory, conversationId: "two" } } : options;
    const { toolCalls } = await dataOf(service.post(TEXT, { input: "Delete it", options }));
    const history = [
      { role: "user", content: "Delete it" },
      { role: "assistant", content: toolCalls },
    ];
    await dataOf(service.post(TEXT, { input: [...history, answer("c1", "yes"), quick], options: settings }));
    await dataOf(service.post(TEXT, { input: "Thanks", options: settings }));
    assert.deepEqual(
      upstream.requests[2]!.body.messages.slice(1).map(({ role, content }: Loose) => [role, content]),
      [
        ["user", "Delete it"],
        ["assistant", null],
        ["tool", "yes"],
        ["user", "And be quick"],
        ["assistant", "Done."],
        ["user", "Thanks"],
      ],
    );
  });

test("POST /agents/:id/ag-ui with the result of a call and words of the user stores both", async (t) => {
  const { service, upstream } = await serve(t, { memory: "chats" });
  upstream.replies(calls([ASKS]), says("Done."), says("Bye."));
  const post = async (messages: object[]): Promise<Loose[]> => {
    const body = { threadId: "one", runId: "r", protocolVersion: "1.0", messages, tools: [], context: [] };
    const reply = await service.post("/agents/assistant/ag-ui", body);
    return parseEvents(await reply.text()).map(({ data }) => JSON.parse(data));
  };
  const user = { id: "u1", role: "user", content: "Delete it" };
  const start = (await post([user])).find(({ type }) => type === "TOOL_CALL_START");
  const called = { id: "c1", type: "function", function: { name: "confirm", arguments: JSON.stringify(INPUT) } };
  await post([
    user,
    { id: start.parentMessageId ?? "a1", role: "assistant", toolCalls: [called] },
    { id: "t1", role: "tool", toolCallId: "c1", content: "yes" },
    { id: "u2", ...quick },
  ]);
  assert.deepEqual(await storedTexts(service), [
    ["user", "Delete it"],
    ["assistant", "yes"],
    ["user", "And be quick"],
    ["assistant", "Done."],
  ]);
});

test("POST /v1/chat/completions and /v1/responses with the output of one call of two is 400 that names the other, as OpenAI has it", async (t) => {
  const { service, upstream } = await serve(t);
  const called = [ASKS, SECOND].map(({ id, name, input }) => ({ id, name, arguments: JSON.stringify(input) }));
  const chat = [
    { role: "user", content: "Delete it" },
    { role: "assistant", tool_calls: called.map(({ id, ...call }) => ({ id, type: "function", function: call })) },
    { role: "tool", tool_call_id: "c1", content: "yes" },
  ];
  const items = [
    { role: "user", content: "Delete it" },
    ...called.map(({ id, ...call }) => ({ type: "function_call", call_id: id, ...call })),
    { type: "function_call_output", call_id: "c1", output: "yes" },
  ];
  for (const [path, body, param] of [
    ["/v1/chat/completions", { messages: chat }, "messages"],
    ["/v1/responses", { input: items }, "input"],
    ["/v1/responses", { input: items, background: true }, "input"],
  ] as const) {
    const reply = await service.post(path, { model: "assistant", ...body });
    const { error } = (await reply.json()) as Loose;
    assert.deepEqual([reply.status, error.param], [400, param]);
    assert.match(error.message, /the call "c3" has no output/);
  }
  assert.equal(upstream.requests.length, 0);
  const more = [...chat, { role: "user", content: "Never mind" }];
  assert.equal((await service.post("/v1/chat/completions", { model: "assistant", messages: more })).status, 200);
});
