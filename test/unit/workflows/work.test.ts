/** What steps do when they run: step plugins, tools and agents, called as an engine would call them. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { EVERYTHING } from "../../../core/identity/principal.ts";
import { cloneJson } from "../../../core/lib/canonical-json.ts";
import { type Step, Suspend } from "../../../core/workflows/definition/definition.ts";
import { callOf, linked, oneStep, run } from "../../support/definitions.ts";

const plugin = (execute: string, rest = "") => ({
  plugins: { "steps/mine.mjs": `export default { kind: "step", ${rest} execute: ${execute} };` },
});
const MINE = { andThen: { use: "mine" } };

test("a step plugin sees copies: what it changes is nobody else's, and is there when it reads it again", async (t) => {
  const step = await oneStep(
    t,
    MINE,
    {},
    plugin(
      `(step) => {
      step.data.list.push(9); step.input.n = 9; step.state.n = 9; step.steps.a.n = 9; step.context.n = 9; step.user.n = 9;
      step.resumeData.n = 9; step.config.deep.n = 9;
      return { same: step.data === step.data, data: step.data, config: step.config }; }`,
      `config: { type: "object", properties: { deep: { type: "object", default: {} } } },`,
    ),
  );
  const scope = {
    data: { list: [1] },
    input: { n: 1 },
    state: { n: 1 },
    steps: { a: { n: 1 } },
    context: { n: 1 },
    user: { n: 1 },
  };
  const before = structuredClone(scope);
  const resume = { data: { n: 1 } };
  const expected = { same: true, data: { list: [1, 9] }, config: { deep: { n: 9 } } };
  assert.deepEqual(run(step, callOf(scope, { resume })), expected);
  assert.deepEqual(run(step, callOf(scope, { resume })), expected, "its settings are as they were");
  assert.deepEqual([scope, resume], [before, { data: { n: 1 } }]);
});

test("a step plugin is told which execution, which try and which conversation it works for; its signal is made on demand", async (t) => {
  const step = await oneStep(
    t,
    MINE,
    {},
    plugin(`({ executionId, idempotencyKey, attempt, conversationId, resumeData, signal, logger, data }) =>
      data === 0 ? 0 : [executionId, idempotencyKey, attempt, conversationId, resumeData, signal.aborted, typeof logger.info]`),
  );
  const call = callOf({}, { attempt: 3, conversationId: "c" });
  assert.deepEqual(run(step, call), ["execution-1", "execution-1:s", 3, "c", undefined, false, "function"]);
  assert.equal(call.signals, 1);
});

test("a step plugin that asks for no signal costs none", async (t) => {
  const step = await oneStep(t, { andThen: { use: "add-tax" } });
  const call = callOf({ data: { amount: 10 } });
  assert.deepEqual(run(step, call), { amount: 10, total: 12 });
  assert.equal(call.signals, 0);
});

test("suspend gives what it was told, resumeData is null after a resume without data", async (t) => {
  const source = `async ({ suspend, resumeData }) => (resumeData === undefined ? suspend("A person must look", { n: 1 }) : { resumeData })`;
  const step = await oneStep(t, MINE, {}, plugin(source));
  const waiting = await run(step, callOf());
  assert.ok(waiting instanceof Suspend);
  assert.deepEqual([waiting.reason, waiting.data], ["A person must look", { n: 1 }]);
  assert.deepEqual(await run(step, callOf({}, { resume: { data: undefined } })), { resumeData: null });
  assert.deepEqual(await run(step, callOf({}, { resume: { data: { ok: true } } })), { resumeData: { ok: true } });
});

test("setState passes on what it is given, and takes objects only", async (t) => {
  const step = await oneStep(t, MINE, {}, plugin(`({ setState, data }) => void setState(data)`));
  const call = callOf({ data: { n: 1 } });
  run(step, call);
  assert.deepEqual(call.changes, [{ n: 1 }]);
  for (const data of [null, [1], "x"]) {
    assert.throws(() => run(step, callOf({ data })), { message: "setState takes an object" });
  }
});

test("what a step plugin throws comes out as it is", async (t) => {
  const step = await oneStep(t, MINE, {}, plugin(`async () => { throw new Error("the printer is on fire"); }`));
  await assert.rejects(async () => run(step, callOf()), { message: "the printer is on fire" });
});

test("a step of andTap gives nothing, and cannot suspend", async (t) => {
  const tap = (data: unknown) =>
    oneStep(t, { andTap: { use: "mine" } }, {}, plugin(`({ suspend }) => (${JSON.stringify(data)} ?? suspend("no"))`));
  assert.equal(run(await tap({ a: 1 }), callOf()), null);
  const step = await tap(null);
  assert.ok(step.kind === "work" && step.tap);
  assert.throws(() => run(step, callOf()), { message: "a step of andTap cannot suspend" });
});

const WHOAMI = `export default { kind: "tool", parameters: { type: "object", properties: { n: { type: "number" } } },
  execute: (input, call) => {
    input.seen = true; call.context.seen = true;
    return { input, user: call.user, context: call.context, requestId: call.requestId, conversationId: call.conversationId,
      executionId: call.executionId, idempotencyKey: call.idempotencyKey }; } };`;

test("a tool gets its input, and on whose behalf it runs", async (t) => {
  const step = await oneStep(
    t,
    { andThen: { tool: "who", input: { n: "{{ data.n + 1 }}" } } },
    { tools: { who: { use: "whoami" } } },
    { plugins: { "tools/whoami.mjs": WHOAMI } },
  );
  const scope = { data: { n: 1 }, context: { tenant: "t" }, user: { id: "ada" } };
  const call = callOf(scope, { conversationId: "c" });
  assert.deepEqual(run(step, call), {
    input: { n: 2, seen: true },
    user: { id: "ada" },
    context: { tenant: "t", seen: true },
    requestId: "request-1",
    conversationId: "c",
    executionId: "execution-1",
    idempotencyKey: "execution-1:s",
  });
  assert.deepEqual(scope.context, { tenant: "t" });
  assert.equal(call.signals, 0);
});

test("a tool without an input gets a copy of data; an input that does not fit never reaches it", async (t) => {
  const step = await oneStep(
    t,
    { andThen: { tool: "who" } },
    { tools: { who: { use: "whoami" } } },
    { plugins: { "tools/whoami.mjs": WHOAMI } },
  );
  const data = { n: 1 };
  assert.deepEqual((run(step, callOf({ data })) as { input: unknown }).input, { n: 1, seen: true });
  assert.deepEqual(data, { n: 1 });
  assert.throws(() => run(step, callOf({ data: { n: "x" } })), {
    kind: "invalid_input",
    message: "input.n must be number",
  });
});

test("a tool that fails says why, and one that is stopped says what stopped it", async (t) => {
  const wait = `export default { kind: "tool", execute: async (input, call) => {
    if (input.fail) throw new Error("the shop is closed");
    await new Promise((resolve, reject) => call.signal.addEventListener("abort", () => reject(new Error("aborted")))); } };`;
  const step = await oneStep(
    t,
    { andThen: { tool: "wait" } },
    { tools: { wait: { use: "wait" } } },
    { plugins: { "tools/wait.mjs": wait } },
  );
  await assert.rejects(async () => run(step, callOf({ data: { fail: true } })), {
    kind: "tool_failed",
    message: "the shop is closed",
  });
  const call = callOf({ data: {} });
  const stopped = assert.rejects(async () => run(step, call), { message: "enough" });
  call.abort(new Error("enough"));
  await stopped;
});

const AGENTS = {
  providers: {
    demo: {
      use: "scripted",
      replies: [
        { when: "object", object: { text: "Dear Ada", n: 1 } },
        { when: "wrong|does not fit", text: "no JSON" },
        { when: "down", error: "unavailable" },
        { when: "sum", call: { tool: "add", input: { a: 1, b: 2 } } },
      ],
    },
  },
  tools: { add: { use: "add" } },
  memory: { default: {} },
  agents: {
    writer: { model: "demo/echo", memory: false, tools: ["add"], instructions: "For {{ context.tenant }}." },
    keeper: { model: "demo/echo" },
  },
};

const agentStep = (t: Parameters<typeof oneStep>[0], step: object) =>
  oneStep(t, { andAgent: { agent: "writer", ...step } }, AGENTS);
const CONTEXT = { context: { tenant: "t" } };

test("andAgent gives the text, with expressions in the prompt, and tools", async (t) => {
  const step = await agentStep(t, { prompt: "Write to {{ input.name }} {{ data }}" });
  assert.deepEqual(await run(step, callOf({ ...CONTEXT, input: { name: "Ada" }, data: { a: 1 } })), {
    text: 'Write to Ada {"a":1}',
  });
  const sum = await agentStep(t, { prompt: "The sum" });
  assert.deepEqual(await run(sum, callOf(CONTEXT)), { text: '{"sum":3}' });
});

test("andAgent with a schema gives the object, and fails with what does not fit", async (t) => {
  const schema = { properties: { text: { type: "string" } }, required: ["text"] };
  const step = await agentStep(t, { prompt: "{{ data }}", schema });
  assert.deepEqual(await run(step, callOf({ ...CONTEXT, data: "An object" })), { text: "Dear Ada", n: 1 });
  await assert.rejects(async () => run(step, callOf({ ...CONTEXT, data: "wrong" })), {
    kind: "provider_failed",
    message: "the model's answer does not fit the schema: it is not JSON",
  });
});

test("andAgent says that the model failed in words for people, and which expression did", async (t) => {
  const step = await agentStep(t, { prompt: "{{ data }}" });
  await assert.rejects(async () => run(step, callOf({ ...CONTEXT, data: "down" })), {
    kind: "provider_failed",
    message: /^model provider failed: unavailable/,
  });
  const missing = await agentStep(t, { prompt: "{{ data.gone }}" });
  await assert.rejects(async () => run(missing, callOf({ ...CONTEXT, data: {} })), { name: "ExpressionError" });
});

test("andAgent stops when its step is stopped", async (t) => {
  const slow = { ...AGENTS, providers: { demo: { use: "scripted", firstDelay: "30s" } } };
  const step = await oneStep(t, { andAgent: { agent: "writer", prompt: "x" } }, slow);
  const call = callOf(CONTEXT);
  const stopped = assert.rejects(async () => run(step, call), { message: "enough" });
  await new Promise((resolve) => setTimeout(resolve, 20));
  call.abort(new Error("enough"));
  await stopped;
});

test("andAgent passes the parts of its run on when the step streams, and not otherwise", async (t) => {
  const streaming = callOf(CONTEXT);
  await run(await agentStep(t, { prompt: "one two three", stream: true }), streaming);
  const parts = streaming.parts as { type: string; delta?: string }[];
  const deltas = parts.filter(({ type }) => type === "text-delta").map(({ delta }) => delta);
  assert.equal(deltas.join(""), "one two three");
  assert.equal(parts.at(-1)?.type, "finish");
  for (const part of parts.filter(({ type }) => type === "text-delta")) {
    assert.deepEqual(Object.keys(part), ["type", "id", "delta"]);
  }
  const silent = callOf(CONTEXT);
  await run(await agentStep(t, { prompt: "one two three" }), silent);
  assert.deepEqual(silent.parts, []);
});

test("andAgent speaks in the conversation of its execution, for the user of it", async (t) => {
  const workflows = { w: { steps: [{ id: "s", andAgent: { agent: "keeper", prompt: "Remember me" } }] } };
  const { workflows: compiled, memories } = await linked(t, { ...AGENTS, workflows });
  const step: Step = compiled.get("w")!.definition.steps[0]!;
  await run(step, callOf({}, { conversationId: "talk", userId: "ada" }));
  const { json } = await memories.get("default")!.for(EVERYTHING).messages("talk", { limit: 10 });
  const { conversation, messages } = JSON.parse(json);
  assert.equal(conversation.userId, "ada");
  assert.deepEqual(
    messages.map(({ role }: { role: string }) => role),
    ["user", "assistant"],
  );
});

test("copies keep keys that are dangerous, and share nothing", () => {
  const value = JSON.parse('{"__proto__": {"polluted": true}, "list": [1, {"a": null}], "constructor": 1}');
  const copy = cloneJson(value);
  assert.deepEqual(copy, value);
  assert.equal(JSON.stringify(copy), JSON.stringify(value));
  assert.equal((copy as { polluted?: boolean }).polluted, undefined);
  assert.notEqual(copy.list, value.list);
  assert.notEqual(copy.list[1], value.list[1]);
});
