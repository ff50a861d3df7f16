/** Answers of a model that were cut off, filtered, or ended before their run was done, and who uses them: `finishReason` everywhere. */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { A2aCaller, said } from "../support/a2a.ts";
import { calls, type OpenAIUpstream, says } from "../support/openai-upstream.ts";
import { pluginFolder } from "../support/plugin-folder.ts";
import { dataOf, errorOf, type Loose, serveUpstream } from "../support/served-upstream.ts";
import { parseEvents, startService, type TestService } from "../support/service.ts";
import { PROJECT, serveStrict } from "../support/strict-providers.ts";

const TEXT = "/agents/assistant/text";
const LAMP = `export default { kind: "tool", name: "lamp", description: "Switches lamps", 
  parameters: { type: "object", properties: { room: { type: "string" } } },
  execute: (input) => ({ on: input.room ?? "all" }) };`;
const ASK = { client: true, description: "Asks the user", parameters: { type: "object" } };
const BOOLEAN = { type: "object", properties: { ok: { type: "boolean" } }, required: ["ok"] };
const CUT = {
  steps: [{ call: { index: 0, id: "c1", name: "lamp", arguments: "" } }, { finish: "length" }, { done: true as const }],
};
const lamp = calls([{ name: "lamp", id: "c1", input: { room: "attic" } }]);
const filtered = calls([{ name: "lamp", id: "c1", input: { room: "attic" } }], { finishReason: "content_filter" });
const delegates = calls([{ name: "delegate_task", id: "d1", input: { agentId: "helper", task: "Help" } }]);

const step = (more: object = {}) => ({ id: "ask", andAgent: { agent: "helper", prompt: "{{ data }}", ...more } });
const workflow = (more?: object) => ({ steps: [step(more), { id: "publish", andThen: { set: "{{ data }}" } }] });

/** The service of every test below: it stands in for all of them, since an upstream says what a test tells it to. */
const serve = (t: TestContext, agent: object = {}, rest: object = {}) =>
  serveUpstream(
    t,
    { tools: ["lamp", "ask"], subAgents: ["helper"], ...agent },
    {
      tools: { lamp: { use: "lamp" }, ask: ASK },
      memory: { default: {} },
      agents: { helper: { model: "up/helper", tools: ["lamp"], maxSteps: 1, memory: false } },
      workflows: {
        plain: workflow(),
        checked: workflow({ schema: BOOLEAN }),
        lenient: workflow({ accept: ["length", "content-filter", "tool-calls"] }),
      },
      mcp: { servers: { main: { agents: ["assistant"] } } },
      ...rest,
    },
    { plugins: [pluginFolder(t, { "tools/lamp.mjs": LAMP })] },
  );

/** What the model was told of its calls in the last request. */
const toldLast = ({ requests }: OpenAIUpstream): string[] => [...requests.at(-1)!.toolOutputs];
const postEvents = async (service: TestService, path: string, body: unknown, headers = {}): Promise<Loose[]> => {
  const reply = await service.post(path, body, headers);
  assert.equal(reply.status, 200);
  return parseEvents(await reply.text())
    .filter(({ data }) => data !== "[DONE]")
    .map(({ data }) => JSON.parse(data));
};

test("POST /agents/:id/text does not run the calls of an answer that was cut off: the model is told, and asked again", async (t) => {
  const { service, upstream } = await serve(t);
  upstream.replies(CUT, lamp, says("Done."));
  const data = await dataOf(service.post(TEXT, { input: "Light" }));
  assert.deepEqual([data.text, data.finishReason], ["Done.", "stop"]);
  assert.deepEqual(
    data.toolResults.map(({ output }: Loose) => output),
    [{ on: "attic" }],
  );
  const [told] = upstream.requests[1]!.toolOutputs;
  assert.match(told!, /cut off at the limit of output tokens/);
});

test("POST /agents/:id/text does not run the calls of an answer that the provider filtered", async (t) => {
  const { service, upstream } = await serve(t);
  upstream.replies(filtered, says("Sorry."));
  const data = await dataOf(service.post(TEXT, { input: "Light" }));
  assert.deepEqual([data.text, data.finishReason, data.toolResults], ["Sorry.", "stop", []]);
  assert.match(toldLast(upstream)[0]!, /content filter/);
});

for (const [reply, finishReason] of [
  [CUT, "length"],
  [filtered, "content-filter"],
] as const) {
  test(`POST /agents/:id/text ends with ${finishReason} when a second answer with calls ends so, and has run none of them`, async (t) => {
    const { service, upstream } = await serve(t, { memory: "default" });
    upstream.replies(reply, reply, says("Go on."));
    const options = { conversationId: "c1" };
    const data = await dataOf(service.post(TEXT, { input: "Light", options }));
    assert.deepEqual([data.finishReason, data.toolCalls.length, data.toolResults], [finishReason, 2, []]);
    assert.equal(upstream.requests.length, 2);
    const next = await dataOf(service.post(TEXT, { input: "And now?", options }));
    assert.equal(next.text, "Go on.");
    const tools = upstream.requests[2]!.body.messages.filter(({ role }: Loose) => role === "tool");
    assert.equal(tools.length, 2);
    for (const { content } of tools) assert.match(content, /none of its tool calls ran/);
  });
}

test("POST /agents/:id/stream tells of a call that was cut off with a tool-error, and of the second with the reason at the end", async (t) => {
  const { service, upstream } = await serve(t);
  upstream.replies(CUT, CUT);
  const parts = await postEvents(service, "/agents/assistant/stream", { input: "Light" });
  assert.equal(parts.filter(({ type }) => type === "tool-error").length, 2);
  assert.equal(parts.filter(({ type }) => type === "tool-result").length, 0);
  assert.equal(parts.at(-1).finishReason, "length");
});

test("POST /agents/:id/text with durable: true does not run the calls of an answer that was cut off either", async (t) => {
  const { service, upstream } = await serve(t, { durable: true });
  upstream.replies(CUT, CUT);
  const data = await dataOf(service.post(TEXT, { input: "Light" }));
  assert.deepEqual([data.finishReason, data.toolResults], ["length", []]);
});

test("POST /agents/:id/chat never offers a client-side call of an answer that was cut off to the client", async (t) => {
  const { service, upstream } = await serve(t);
  upstream.replies(calls([{ name: "ask", id: "a1" }], { finishReason: "length" }), says("Well."));
  const chunks = await postEvents(service, "/agents/assistant/chat", { input: "Ask" });
  assert.deepEqual(
    chunks.filter(({ type }) => type === "tool-input-available"),
    [],
  );
  const [error] = chunks.filter(({ type }) => type === "tool-input-error");
  assert.equal(error.toolCallId, "a1");
  assert.match(error.errorText, /cut off/);
  assert.deepEqual(chunks.at(-1), { type: "finish", finishReason: "stop" });
});

test("POST /agents/:id/ag-ui leaves no call of an answer that was cut off to the client", async (t) => {
  const { service, upstream } = await serve(t);
  upstream.replies(calls([{ name: "go", id: "a1" }], { finishReason: "length" }), says("Well."));
  const tools = [{ name: "go", description: "Goes", parameters: { type: "object" } }];
  const body = { threadId: "t1", runId: "r1", state: {}, context: [], forwardedProps: {}, tools };
  const messages = [{ id: "m1", role: "user", content: "Go" }];
  const events = await postEvents(service, "/agents/assistant/ag-ui", { ...body, messages });
  const results = events.filter(({ type }) => type === "TOOL_CALL_RESULT");
  assert.match(results[0]?.content ?? "", /cut off/);
  assert.equal(events.at(-1).outcome?.pendingToolCallIds, undefined);
});

const FUNCTION = { type: "function", function: { name: "go", parameters: { type: "object", properties: {} } } };
const cutGo = calls([{ name: "go", id: "a1" }], { finishReason: "length" });

test("POST /v1/chat/completions gives no call of an answer that was cut off to the client: finish_reason is length", async (t) => {
  const { service, upstream } = await serve(t);
  const messages = [{ role: "user", content: "Go" }];
  for (const stream of [false, true]) {
    upstream.replies(cutGo, cutGo);
    const reply = await service.post("/v1/chat/completions", {
      model: "assistant",
      messages,
      tools: [FUNCTION],
      stream,
    });
    const text = await reply.text();
    assert.match(text, /"finish_reason":"length"/);
    assert.doesNotMatch(text, /"tool_calls":/);
  }
});

test("POST /v1/responses gives no call of an answer that was cut off to the client: it is incomplete for max_output_tokens", async (t) => {
  const { service, upstream } = await serve(t);
  const tools = [{ type: "function", name: "go", parameters: { type: "object", properties: {} }, strict: false }];
  for (const stream of [false, true]) {
    upstream.replies(cutGo, cutGo);
    const reply = await service.post("/v1/responses", { model: "assistant", input: "Go", tools, stream });
    const text = await reply.text();
    assert.match(text, /"incomplete_details":{"reason":"max_output_tokens"}/);
    assert.doesNotMatch(text, /"type":"function_call"/);
  }
});

for (const [reason, detail] of [
  ["length", "max_output_tokens"],
  ["content_filter", "content_filter"],
] as const) {
  test(`POST /v1/responses gives the item in which an answer ended by ${reason} as incomplete, and those before it as completed`, async (t) => {
    const { service, upstream } = await serve(t);
    const texts: [reply: ReturnType<typeof says>, statuses: string[][]][] = [
      [
        says("So far", { reasoning: "I think", finishReason: reason }),
        [
          ["reasoning", "completed"],
          ["message", "incomplete"],
        ],
      ],
      [says("", { reasoning: "I thi", finishReason: reason }), [["reasoning", "incomplete"]]],
    ];
    for (const [reply, expected] of texts) {
      const statuses = (items: Loose[]) => items.map(({ type, status }) => [type, status]);
      upstream.replies(reply, reply);
      const body = { model: "assistant", input: "Go" };
      const whole: Loose = await (await service.post("/v1/responses", body)).json();
      assert.equal(whole.incomplete_details.reason, detail);
      assert.deepEqual(statuses(whole.output), expected);
      const stored: Loose = await (await service.get(`/v1/responses/${whole.id}`)).json();
      assert.deepEqual(statuses(stored.output), expected);
      const events = parseEvents(await (await service.post("/v1/responses", { ...body, stream: true })).text())
        .filter(({ data }) => data !== "[DONE]")
        .map(({ data }): Loose => JSON.parse(data));
      const done = events.filter(({ type }) => type === "response.output_item.done");
      assert.deepEqual(statuses(done.map(({ item }) => item)), expected);
      assert.deepEqual(statuses(events.at(-1).response.output), expected);
    }
  });
}

test("POST /v1/responses gives an item as completed when the answer ended by itself, or went on with a call", async (t) => {
  const { service, upstream } = await serve(t);
  const answer = { steps: [{ text: "I look." }, ...lamp.steps!] };
  upstream.replies(answer, says("It is on."));
  const reply = await service.post("/v1/responses", {
    model: "assistant",
    input: "Go",
    include: ["penstock:tool_call"],
  });
  const { output }: Loose = await reply.json();
  assert.deepEqual(
    output.map(({ type, status }: Loose) => [type, status]),
    [
      ["message", "completed"],
      ["penstock:tool_call", "completed"],
      ["message", "completed"],
    ],
  );
});

test("POST /v1/chat/completions says stop for an answer with the reason tool_calls and without a call", async (t) => {
  const { service, upstream } = await serve(t);
  const messages = [{ role: "user", content: "Go" }];
  upstream.fallback(says("I would look.", { finishReason: "tool_calls" }));
  const reply: Loose = await (await service.post("/v1/chat/completions", { model: "assistant", messages })).json();
  assert.equal(reply.choices[0].finish_reason, "stop");
  assert.equal((await dataOf(service.post(TEXT, { input: "x" }))).finishReason, "stop");
});

test("POST /agents/:id/text out of steps: finishReason is tool-calls whatever the provider says, and the log has one warn line", async (t) => {
  const { service, upstream } = await serve(t, { maxSteps: 1 });
  upstream.replies(calls([{ name: "lamp" }], { finishReason: "stop" }));
  const data = await dataOf(service.post(TEXT, { input: "Light" }));
  assert.deepEqual([data.finishReason, data.toolResults.length], ["tool-calls", 1]);
  const lines = service.log.filter(({ msg }) => /maxSteps/.test(String(msg)));
  assert.deepEqual(
    lines.map(({ level, agentId, maxSteps }) => [level, agentId, maxSteps]),
    [["warn", "assistant", 1]],
  );
});

for (const [what, reply, why] of [
  ["was cut off", says("The cou", { finishReason: "length" }), /cut off at the limit of output tokens.*The cou/],
  ["was filtered", says("", { finishReason: "content_filter" }), /content filter/],
  ["ran out of steps", lamp, /maxSteps/],
] as const) {
  test(`POST /agents/:id/text: a sub-agent whose answer ${what} is a tool error that says so`, async (t) => {
    const { service, upstream } = await serve(t);
    upstream.replies(delegates, reply, says("I see."));
    const parts = await postEvents(service, "/agents/assistant/stream", { input: "Help" });
    const [error] = parts.filter(({ type, toolName }) => type === "tool-error" && toolName === "delegate_task");
    assert.match(error?.error ?? "", why);
    assert.match(toldLast(upstream)[0]!, why);
  });

  test(`POST /workflows/:id/execute: an andAgent step whose answer ${what} fails with the reason`, async (t) => {
    const { service, upstream } = await serve(t);
    upstream.fallback(reply);
    const reply2 = await service.post("/workflows/plain/execute", { input: "x" });
    assert.equal(reply2.headers.get("x-error-code"), "step_failed");
    const { error } = (await reply2.json()) as Loose;
    assert.match(error, /^step "ask": agent "helper" did not finish: /);
    assert.match(error.replace(/$/, " The cou"), why);
  });

  test(`POST /workflows/:id/execute: an andAgent step that accepts it gives finishReason beside the text of an answer that ${what}`, async (t) => {
    const { service, upstream } = await serve(t);
    upstream.fallback(reply);
    const { result } = await dataOf(service.post("/workflows/lenient/execute", { input: "x" }));
    assert.deepEqual(Object.keys(result), ["text", "finishReason"]);
    assert.ok(["length", "content-filter", "tool-calls"].includes(result.finishReason));
  });
}

test("POST /workflows/:id/execute: an andAgent step with a schema whose answer was cut off is not asked again, and says so", async (t) => {
  const { service, upstream } = await serve(t);
  upstream.fallback(says('{"ok": tr', { finishReason: "length" }));
  const { error } = await errorOf(service.post("/workflows/checked/execute", { input: "x" }));
  assert.match(error, /cut off at the limit of output tokens/);
  assert.equal(upstream.requests.length, 1);
});

test("POST /agents/:id/object and /stream-object: an answer that was cut off or filtered is not asked for again, and the error says so", async (t) => {
  const { service, upstream } = await serve(t);
  for (const [finishReason, why] of [
    ["length", /cut off/],
    ["content_filter", /content filter/],
  ] as const) {
    upstream.fallback(says('{"ok": tr', { finishReason }));
    const before = upstream.requests.length;
    const { status, error } = await errorOf(service.post("/agents/assistant/object", { input: "x", schema: BOOLEAN }));
    assert.equal(status, 500);
    assert.match(error, why);
    const events = await postEvents(service, "/agents/assistant/stream-object", { input: "x", schema: BOOLEAN });
    assert.match(events.at(-1).error, why);
    assert.equal(upstream.requests.length, before + 2);
  }
});

test("POST /agents/:id/object takes an answer that was cut off behind a value that fits", async (t) => {
  const { service, upstream } = await serve(t);
  upstream.replies(says('{"ok": true} And further', { finishReason: "length" }));
  assert.deepEqual(await dataOf(service.post("/agents/assistant/object", { input: "x", schema: BOOLEAN })), {
    ok: true,
  });
});

test("POST /a2a/:id and the MCP tool of an agent say that its answer was cut off", async (t) => {
  const { service, upstream } = await serve(t);
  upstream.fallback(says("Half a", { finishReason: "length" }));
  const task = await new A2aCaller(service).send("assistant", said("x"));
  assert.equal(task.metadata.finishReason, "length");
  const call = {
    jsonrpc: "2.0",
    id: 1,
    method: "tools/call",
    params: { name: "agent_assistant", arguments: { prompt: "x" } },
  };
  const headers = { accept: "application/json, text/event-stream" };
  const [event] = await postEvents(service, "/mcp/main/mcp", call, headers);
  const { result } = event;
  assert.equal(result.isError, true, JSON.stringify(result));
  assert.match(JSON.stringify(result.content), /cut off.*Half a/);
});

for (const [name, ended] of [
  ["Anthropic", "max_tokens"],
  ["Gemini", "MAX_TOKENS"],
] as const)
  test(`POST /agents/:id/text on the package of ${name} does not run the calls of an answer that ended with ${ended}`, async (t) => {
    const tools = { lamp: { use: "add" } };
    const { service, upstream } = await serveStrict(t, name, { tools: ["lamp"] }, { tools });
    upstream.says({ calls: [{ name: "lamp", input: { a: 1, b: 2 } }], ended }, { text: "Done." });
    const data = await dataOf(service.post(TEXT, { input: "Light" }));
    assert.deepEqual([data.text, data.toolResults], ["Done.", []]);
    assert.deepEqual(upstream.refusals, []);
    assert.match(JSON.stringify(upstream.requests[1]), /cut off at the limit of output tokens/);
  });

test("POST /agents/:id/text on @ai-sdk/openai-compatible does not run the calls of an answer that was cut off", async (t) => {
  const { upstream } = await serve(t);
  const options = { baseURL: upstream.baseURL, apiKey: "test" };
  const service = await startService(
    t,
    {
      name: "Test",
      version: "1.0.0",
      providers: { pack: { use: "@ai-sdk/openai-compatible", retries: 0, options } },
      tools: { lamp: { use: "lamp" } },
      agents: { assistant: { model: "pack/m", tools: ["lamp"], memory: false } },
    },
    { plugins: [pluginFolder(t, { "tools/lamp.mjs": LAMP })], project: PROJECT },
  );
  upstream.replies(calls([{ name: "lamp" }], { finishReason: "length" }), says("Done."));
  const data = await dataOf(service.post(TEXT, { input: "Light" }));
  assert.deepEqual([data.text, data.toolResults], ["Done.", []]);
});
