/** `POST /agents/:id/ag-ui`: order of events, errors, interrupts and isolation, as raw requests see them. */
import assert from "node:assert/strict";
import { beforeEach, describe, type TestContext, test } from "node:test";
import { AUTH, as, CONSOLE, PAY_PLUGIN, ran } from "../support/approvals.ts";
import { calls, failure, says } from "../support/openai-upstream.ts";
import { pluginFolder } from "../support/plugin-folder.ts";
import { dataOf, errorOf, type Loose, serveUpstream } from "../support/served-upstream.ts";
import type { TestService } from "../support/service.ts";

const PATH = "/agents/assistant/ag-ui";
const PAYS = { id: "c1", name: "pay", input: { amount: 5 } };
const HI = [{ id: "u1", role: "user", content: "Hi" }];
const ASKS_USER = { name: "confirm", parameters: { properties: { sure: { type: "boolean" } }, required: ["sure"] } };

function serve(t: TestContext, agent: object = {}, rest: Record<string, object> = {}) {
  const tools = { pay: { use: "pay", approval: true }, sum: { use: "add" } };
  return serveUpstream(
    t,
    { tools: ["pay"], ...agent },
    { tools, memory: { chats: {}, notes: { workingMemory: { schema: NOTE } } }, ...rest },
    { plugins: [pluginFolder(t, PAY_PLUGIN)], env: { SERVICE_CONSOLE_ACCESS_KEY: "the-key-of-the-console" } },
  );
}
const NOTE = { type: "object", properties: { name: { type: "string" } }, additionalProperties: false };

const input = (rest: Loose = {}) => ({ threadId: "t1", runId: "r1", protocolVersion: "1.0", messages: HI, ...rest });

/** The events of a run that began. */
async function eventsOf(reply: Response | Promise<Response>): Promise<Loose[]> {
  const { status, body } = await textOf(reply);
  assert.equal(status, 200, body);
  return [...body.matchAll(/^data: (.*)$/gm)].map(([, data]) => JSON.parse(data!));
}

async function textOf(reply: Response | Promise<Response>) {
  const { status, text } = await Promise.resolve(reply).then(async (given) => ({
    status: given.status,
    text: await given.text(),
  }));
  return { status, body: text };
}

const run = (service: TestService, rest: Loose = {}, headers: Record<string, string> = {}) =>
  eventsOf(service.post(PATH, input(rest), headers));
const typesOf = (events: readonly Loose[]) => events.map(({ type }) => type);

/** The thread as a client has it after a call that waits for approval. */
const ASKED = [
  ...HI,
  {
    id: "a1",
    role: "assistant",
    toolCalls: [{ id: "c1", type: "function", function: { name: "pay", arguments: '{"amount":5}' } }],
  },
];

beforeEach(() => void ran.splice(0));

describe("POST /agents/:id/ag-ui", () => {
  test("POST /agents/:id/ag-ui: a run without messages sends the newest 8 Mi characters of a long thread, and reads no more", async (t) => {
    const { service } = await serve(t, { memory: "chats" });
    const conversation = { conversationId: "t1", userId: "anonymous", resourceId: "r" };
    assert.equal((await service.post("/api/memory/conversations", conversation)).status, 201);
    const text = "x".repeat(900_000);
    for (let index = 0; index < 12; index++) {
      const messages = [{ id: `m${index}`, role: "user", parts: [{ type: "text", text }] }];
      await dataOf(service.post("/api/memory/save-messages", { conversationId: "t1", userId: "anonymous", messages }));
    }
    const [, snapshot, finished] = await run(service, { messages: [] });
    const ids = snapshot!.messages.map(({ id }: Loose) => id);
    assert.deepEqual(ids, ["m3", "m4", "m5", "m6", "m7", "m8", "m9", "m10", "m11"]);
    assert.equal(finished!.outcome.type, "success");
  });

  test("POST /agents/:id/ag-ui: editedArgs that do not fit the tool are refused with the name of that field, and the question stays open", async (t) => {
    const { service, upstream } = await serve(t);
    upstream.replies(calls([PAYS]));
    const [interrupt] = (await run(service)).at(-1)!.outcome.interrupts;
    const payload = { approved: true, editedArgs: { amount: "much" } };
    const resume = [{ interruptId: interrupt.id, status: "resolved", payload }];
    const reply = await service.post(PATH, input({ messages: ASKED, resume }));
    const { body } = await textOf(reply);
    assert.match(body, /resume\[0\]\.payload\.editedArgs\.amount must be number/);
    assert.deepEqual(ran, []);
    const [open] = await dataOf(service.get("/approvals"));
    assert.equal(open.approvalId, interrupt.id);
  });

  test("POST /agents/:id/ag-ui: a run with a tool has these events in this order, with these fields", async (t) => {
    const { service, upstream } = await serve(t, { tools: ["sum"], memory: false });
    upstream.replies(calls([{ id: "c1", name: "sum", input: { a: 1, b: 2 } }], { chunks: 1 }), says("Three."));
    const events = await run(service, { parentRunId: "r0" });
    const [{ messageId: first }] = events.filter(({ type }) => type === "TEXT_MESSAGE_START");
    const base = first.replace(/\.\d+$/, "");
    assert.match(base, /^msg_[0-9a-f]{32}$/);
    assert.deepEqual(events, [
      { type: "RUN_STARTED", threadId: "t1", runId: "r1", parentRunId: "r0", protocolVersion: "1.0" },
      { type: "STEP_STARTED", stepName: "step-1" },
      { type: "TOOL_CALL_START", toolCallId: "c1", toolCallName: "sum", parentMessageId: base },
      { type: "TOOL_CALL_ARGS", toolCallId: "c1", delta: '{"a":1,"b":2}' },
      { type: "TOOL_CALL_END", toolCallId: "c1" },
      { type: "TOOL_CALL_RESULT", messageId: `${base}:1`, toolCallId: "c1", content: '{"sum":3}', role: "tool" },
      { type: "STEP_FINISHED", stepName: "step-1" },
      { type: "STEP_STARTED", stepName: "step-2" },
      { type: "TEXT_MESSAGE_START", messageId: `${base}.2`, role: "assistant" },
      { type: "TEXT_MESSAGE_CONTENT", messageId: `${base}.2`, delta: "Three." },
      { type: "TEXT_MESSAGE_END", messageId: `${base}.2` },
      { type: "STEP_FINISHED", stepName: "step-2" },
      {
        type: "RUN_FINISHED",
        threadId: "t1",
        runId: "r1",
        outcome: { type: "success" },
        usage: [{ model: "up/test-model", inputTokens: 20, outputTokens: 10, totalTokens: 30 }],
      },
    ]);
  });

  test("POST /agents/:id/ag-ui: a failed tool is a result that says so, and the run goes on", async (t) => {
    const { service, upstream } = await serve(t, { tools: ["sum"], memory: false });
    upstream.replies(calls([{ id: "c1", name: "sum", input: { a: "x" } }]), says("No."));
    const events = await run(service);
    assert.match(events.find(({ type }) => type === "TOOL_CALL_RESULT").content, /input\.a must be number/);
    assert.equal(events.at(-1).outcome.type, "success");
  });

  test("POST /agents/:id/ag-ui: what is wrong in the body is 400 and names the field, and the model is not asked", async (t) => {
    const { service, upstream } = await serve(t, { memory: false });
    const user = (content: unknown) => ({ messages: [{ id: "u1", role: "user", content }] });
    const answer = (toolCalls: unknown) => ({ messages: [...HI, { id: "a1", role: "assistant", toolCalls }] });
    const resume = (payload: unknown) => ({
      messages: ASKED,
      resume: [{ interruptId: "x", status: "resolved", payload }],
    });
    const cases: [Loose, RegExp][] = [
      [{ threadId: undefined }, /threadId is required/],
      [{ threadId: ".." }, /threadId/],
      [{ runId: 7 }, /runId must be string/],
      [{ messages: "Hi" }, /messages must be array/],
      [{ messages: [] }, /messages must not be empty/],
      [{ messages: ["Hi"] }, /messages\[0\] must be object/],
      [{ messages: [{ role: "friend", content: "x" }] }, /messages\[0\]\.role must be one of/],
      [user(7), /messages\[0\]\.content must be string or array/],
      [user(""), /messages\[0\]\.\w+ must not be empty/],
      [user([{ type: "image" }]), /messages\[0\]\.content\[0\]\.source must be object/],
      [user([{ type: "image", source: { type: "url", value: "ftp://x" } }]), /source\.value must be a data: or http/],
      [user([{ type: "image", source: { type: "file", value: "f1" } }]), /messages\[0\]\.content must not be empty/],
      [answer([{ id: "c1" }]), /messages\[1\]\.toolCalls\[0\]\.function must be object/],
      [answer([{ id: "c1", function: { name: "pay" } }]), /toolCalls\[0\]\.function\.arguments must be string/],
      [
        { messages: [...HI, { id: "t1", role: "tool", toolCallId: "c9", content: "x" }] },
        /messages\[1\]\.toolCallId: there is no call "c9"/,
      ],
      [{ tools: [{ description: "x" }] }, /tools\[0\]\.name is required/],
      [{ tools: [{ name: "pay" }] }, /tools\[0\]\.name: the agent has a tool "pay" of its own/],
      [{ tools: [ASKS_USER, ASKS_USER] }, /tools\[1\]\.name: "confirm" is there twice/],
      [{ tools: [{ name: "x", parameters: [] }] }, /tools\[0\]\.parameters must be object/],
      [{ context: [{}] }, /context\[0\]\.value is required/],
      [{ resume: [{ interruptId: "x", status: "maybe" }] }, /resume\[0\]\.status/],
      [resume({ approved: "yes" }), /resume\[0\]\.payload must be an object with approved/],
      [resume({ approved: true, reason: 7 }), /resume\[0\]\.payload\.reason/],
    ];
    for (const [wrong, message] of cases) {
      const { status, error } = await errorOf(service.post(PATH, input(wrong)));
      assert.match(error, message);
      assert.equal(status, 400, JSON.stringify(wrong));
    }
    assert.equal(upstream.requests.length, 0);
  });

  test("POST /agents/:id/ag-ui: an unknown agent is 404, and a model that refuses is 500, both before the stream", async (t) => {
    const { service, upstream } = await serve(t);
    assert.equal((await errorOf(service.post("/agents/nobody/ag-ui", input()))).status, 404);
    upstream.replies(failure(500));
    assert.equal((await errorOf(service.post(PATH, input()))).status, 500);
  });

  test("POST /agents/:id/ag-ui: input that does not fit a tool of the client is the model's to correct", async (t) => {
    const { service, upstream } = await serve(t, { memory: false });
    const call = (id: string, input: object) => calls([{ id, name: "confirm", input }]);
    upstream.replies(call("c1", { sure: "yes" }), call("c2", { sure: true }));
    const events = await run(service, { tools: [ASKS_USER] });
    assert.match(upstream.requests[1]!.body.messages.at(-1).content, /sure must be boolean/);
    assert.deepEqual(events.at(-1).outcome, { type: "success", pendingToolCallIds: ["c2"] });
  });

  test("POST /agents/:id/ag-ui: a state that does not fit the working memory is 400, and nothing is stored", async (t) => {
    const { service, upstream } = await serve(t, { memory: "notes" });
    const { status, error } = await errorOf(service.post(PATH, input({ state: { name: 7 } })));
    assert.equal(status, 400);
    assert.match(error, /^state: content\.name must be string/);
    assert.equal(upstream.requests.length, 0);
    const kept = await dataOf(service.get("/api/memory/conversations?agentId=assistant"));
    for (const { id } of kept.conversations) {
      const { content } = await dataOf(service.get(`/api/memory/conversations/${id}/working-memory?agentId=assistant`));
      assert.equal(content, null);
    }
  });

  test("POST /agents/:id/ag-ui: an interrupt that nobody answers is asked again, and the model is not called", async (t) => {
    const { service, upstream } = await serve(t);
    upstream.replies(calls([PAYS]));
    const asked = (await run(service)).at(-1).outcome.interrupts;
    const again = await run(service, { runId: "r2", messages: ASKED });
    assert.deepEqual(again.at(-1).outcome, { type: "interrupt", interrupts: asked });
    assert.deepEqual([typesOf(again), ran, upstream.requests.length], [["RUN_STARTED", "RUN_FINISHED"], [], 1]);
  });

  test("POST /agents/:id/ag-ui: the same answer posted again runs nothing, and so does one to another call", async (t) => {
    const { service, upstream } = await serve(t, { memory: false });
    upstream.replies(calls([PAYS]), says("Paid."), says("Again."), says("No."));
    const [{ id: interruptId }] = (await run(service)).at(-1).outcome.interrupts;
    const resume = [{ interruptId, status: "resolved", payload: { approved: true } }];
    const dearer = structuredClone(ASKED) as Loose[];
    dearer[1].toolCalls[0].function.arguments = '{"amount":500}';
    const [wrong] = (await run(service, { runId: "r2", messages: dearer, resume })).filter(
      ({ type }) => type === "TOOL_CALL_RESULT",
    );
    assert.match(wrong.content, /not approved/);
    assert.deepEqual(ran, []);
    await run(service, { runId: "r3", messages: ASKED, resume });
    assert.deepEqual(ran, [5]);
    const twice = await run(service, { runId: "r4", messages: ASKED, resume });
    assert.match(
      twice.find(({ type }) => type === "TOOL_CALL_RESULT").content,
      /"paid":5/,
      "what it gave is told again",
    );
    assert.deepEqual(ran, [5]);
  });

  test("POST /agents/:id/ag-ui: what was answered at POST /approvals counts, whatever the client says after that", async (t) => {
    const { service, upstream } = await serve(t);
    upstream.replies(calls([PAYS]), says("Well."));
    const [{ id: interruptId }] = (await run(service)).at(-1).outcome.interrupts;
    await dataOf(service.post(`/approvals/${interruptId}`, { approved: false, reason: "not today" }));
    const resume = [{ interruptId, status: "resolved", payload: { approved: true } }];
    const events = await run(service, { runId: "r2", messages: ASKED, resume });
    assert.match(events.find(({ type }) => type === "TOOL_CALL_RESULT").content, /not today/);
    assert.deepEqual(ran, []);
  });

  test("POST /agents/:id/ag-ui: an answer that comes with another message of the user is 400, and an unknown one is nothing", async (t) => {
    const { service, upstream } = await serve(t);
    upstream.replies(calls([PAYS]), says("Hello."));
    const [{ id: interruptId }] = (await run(service)).at(-1).outcome.interrupts;
    const resume = [{ interruptId, status: "resolved", payload: { approved: true } }];
    const later = [...ASKED, { id: "u2", role: "user", content: "And?" }];
    const { status, error } = await errorOf(service.post(PATH, input({ runId: "r2", messages: later, resume })));
    assert.deepEqual([status, error], [400, "resume[0]: the call c1 is not the last of messages"]);
    const unknown = [{ ...resume[0], interruptId: "0".repeat(32) }];
    const events = await run(service, { runId: "r3", messages: later, resume: unknown });
    assert.equal(events.at(-1).outcome.type, "success");
    assert.deepEqual(ran, []);
  });

  test("POST /agents/:id/ag-ui: a tool that the console approves is asked for again after a yes of the user", async (t) => {
    const { service, upstream } = await serve(
      t,
      {},
      { auth: AUTH, tools: { pay: { use: "pay", approval: true, approvers: "console" } } },
    );
    upstream.replies(calls([PAYS]), says("Paid."));
    // The user is offered no interrupt that he cannot answer.
    assert.equal((await run(service, {}, as("ada"))).at(-1).outcome.type, "success");
    const [{ approvalId: interruptId }] = await dataOf(service.get("/approvals", as("ada")));
    const resume = [{ interruptId, status: "resolved", payload: { approved: true } }];
    const again = await run(service, { runId: "r2", messages: ASKED, resume }, as("ada"));
    assert.equal(again.at(-1).outcome.type, "success");
    assert.deepEqual(ran, []);
    await dataOf(service.post(`/approvals/${interruptId}`, { approved: true }, CONSOLE));
    await run(service, { runId: "r3", messages: ASKED, resume }, as("ada"));
    assert.deepEqual(ran, [5]);
  });

  test("POST /agents/:id/ag-ui with isolation: a thread and an approval of another user do not exist", async (t) => {
    const { service, upstream } = await serve(t, { memory: "notes" }, { auth: { ...AUTH, isolation: "user" } });
    upstream.replies(calls([PAYS]));
    const state = { name: "Ada" };
    const [{ id: interruptId }] = (await run(service, { state }, as("ada"))).at(-1).outcome.interrupts;

    const nothing = await run(service, { runId: "r2", messages: [] }, as("bob"));
    assert.deepEqual(typesOf(nothing), ["RUN_STARTED", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]);
    assert.deepEqual([nothing[1].messages, nothing[2].outcome], [[], { type: "success" }]);
    const own = await run(service, { runId: "r3", messages: [] }, as("ada"));
    assert.deepEqual([own[1].messages.length, own[2].snapshot, own[3].outcome.type], [2, state, "interrupt"]);

    upstream.replies(says("What?"));
    const resume = [{ interruptId, status: "resolved", payload: { approved: true } }];
    await run(service, { runId: "r4", messages: ASKED, resume }, as("bob"));
    assert.deepEqual(ran, []);
    const [open] = await dataOf(service.get("/approvals", as("ada")));
    assert.deepEqual([open.approvalId, open.status], [interruptId, "open"]);
    assert.equal((await errorOf(service.post(PATH, input()))).status, 401);
  });

  test("POST /agents/:id/ag-ui: a run that the next turn cuts short ends as cancelled, or as an error for older clients", async (t) => {
    const { service, upstream } = await serve(t, { memory: "chats" }, { memory: { chats: { turns: "interrupt" } } });
    for (const [protocolVersion, last] of [
      ["1.0", { type: "RUN_FINISHED", threadId: "t1", runId: "r1", outcome: { type: "cancelled" } }],
      [undefined, { type: "RUN_ERROR", message: "the run was stopped", code: "cancelled" }],
    ] as const) {
      upstream.replies(says("a".repeat(400), { chunks: 400, delay: 20 }), says("Done."));
      const before = upstream.requests.length;
      const slow = run(service, { protocolVersion, messages: [{ id: "u1", role: "user", content: "one" }] });
      await upstream.request(before);
      await run(service, { runId: "r2", messages: [{ id: "u2", role: "user", content: "two" }] });
      const events = await slow;
      const open = new Set<string>();
      for (const { type, messageId } of events) {
        if (type === "TEXT_MESSAGE_START") open.add(messageId);
        if (type === "TEXT_MESSAGE_END") open.delete(messageId);
      }
      assert.deepEqual([events.at(-1), [...open]], [last, []]);
    }
  });
});

test("GET /agents/:id/ag-ui: says what the agent can do", async (t) => {
  const { service } = await serve(t, { memory: "notes", description: "Pays." });
  const { identity, tools, state, humanInTheLoop } = (await (await service.get(PATH)).json()) as Loose;
  assert.deepEqual([identity.description, tools.items.map(({ name }: Loose) => name)], ["Pays.", ["pay"]]);
  assert.deepEqual([tools.clientProvided, state.persistentState, humanInTheLoop.interrupts], [true, true, true]);
});
