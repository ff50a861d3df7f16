/** One turn at a time in a conversation: what a second one does while the first is at work. */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { A2aCaller, now, said } from "../support/a2a.ts";
import { pluginFolder } from "../support/plugin-folder.ts";
import { until } from "../support/probe.ts";
import { dataOf, type Loose } from "../support/served-upstream.ts";
import { startService, type TestService } from "../support/service.ts";

/** A model that answers with all that the user has said. It says `...` first, and waits then while the test holds the question. */
const GATED = `export default { kind: "provider", name: "gated", create: () => ({ retries: 0,
  languageModel: (id) => ({ specificationVersion: "v3", provider: "gated", modelId: id, supportedUrls: {},
    doStream: async ({ prompt, abortSignal }) => {
      const said = prompt.filter(({ role }) => role === "user").map(({ content }) => content.map(({ text }) => text).join(""));
      const gates = globalThis.penstockTestGates;
      const zero = { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 };
      const parts = [{ type: "stream-start", warnings: [] }, { type: "text-start", id: "t" }, { type: "text-delta", id: "t", delta: "..." }];
      const rest = [{ type: "text-delta", id: "t", delta: said.join("|") }, { type: "text-end", id: "t" },
        { type: "finish", finishReason: { unified: "stop", raw: "stop" }, usage: { inputTokens: zero, outputTokens: { total: 1, text: 1, reasoning: 0 } } }];
      const question = said.at(-1);
      gates.asked.push(question);
      return { stream: new ReadableStream({ async pull(controller) {
        const part = parts.shift();
        if (part !== undefined) return controller.enqueue(part);
        const gate = gates.held.get(question);
        if (gate !== undefined) await Promise.race([gate.promise, new Promise((resolve) => abortSignal?.addEventListener("abort", resolve))]);
        await new Promise((resolve) => setTimeout(resolve, 1));
        if (abortSignal?.aborted) return controller.error(abortSignal.reason);
        const next = rest.shift();
        if (next === undefined) controller.close(); else controller.enqueue(next);
      } }) };
    } }) }) };`;

interface Gates {
  /** What the model was asked, in order. */
  readonly asked: string[];
  readonly held: Map<string, PromiseWithResolvers<void>>;
}

async function serve(t: TestContext, memory: object, { limits = {}, agents = {}, models = {} } = {}) {
  const gates: Gates = { asked: [], held: new Map() };
  Object.assign(globalThis, { penstockTestGates: gates });
  const service = await startService(
    t,
    {
      name: "Test",
      version: "1.0.0",
      store: "memory:",
      server: { limits },
      providers: { gated: { use: "gated" }, demo: { use: "scripted", models } },
      memory: { default: memory },
      agents: { assistant: { model: "gated/any" }, ...agents },
      workflows: { flow: { steps: [{ id: "ask", andAgent: { agent: "assistant", prompt: "of a step" } }] } },
    },
    { plugins: [pluginFolder(t, { "providers/gated.mjs": GATED })] },
  );
  const hold = (question: string) => {
    let resolve = () => {};
    const promise = new Promise<void>((done) => {
      resolve = done;
    });
    gates.held.set(question, { promise, resolve, reject: () => {} });
    return () => {
      gates.held.delete(question);
      resolve();
    };
  };
  return { service, hold, asked: gates.asked };
}

const options = { memory: { userId: "ada", conversationId: "c" } };
const send = ({ url }: TestService, route: string, input: string, { signal, more }: Loose = {}) =>
  fetch(`${url}/agents/assistant/${route}`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ input, options, ...more }),
    signal,
  });

/** The conversation as `role: text`. */
async function history(service: TestService, id = "c"): Promise<string[]> {
  const path = `/api/memory/conversations/${encodeURIComponent(id)}/messages?limit=1000`;
  const { messages } = await dataOf(service.get(path));
  return messages.map(({ role, parts }: Loose) => `${role}: ${parts.map((part: Loose) => part.text ?? "").join("")}`);
}

/** Requests at work, with the one that asks. */
async function inFlight(service: TestService): Promise<number> {
  const metrics = await (await service.get("/metrics")).text();
  return Number(/^penstock_http_requests_in_flight (\d+)/m.exec(metrics)![1]);
}

const STEPS = { conversationPersistence: { mode: "step", debounceMs: 0 } };
const OBJECT = { schema: { type: "object", properties: { a: { type: "string" } } } };

test("POST /agents/:id/text, /stream, /chat and /object of one conversation wait for the turn before, and are told what it said", async (t) => {
  for (const route of ["text", "stream", "chat", "object"]) {
    const { service, hold, asked } = await serve(t, {});
    const release = hold("one");
    const first = send(service, "text", "one");
    await until(() => asked.length === 1, "the first call of the model");
    const second = send(service, route, "two", { more: route === "object" ? OBJECT : {} });
    const other = await service.post("/agents/assistant/text", {
      input: "free",
      options: { memory: { userId: "ada", conversationId: "other" } },
    });
    assert.equal(other.status, 200, "another conversation does not wait");
    assert.deepEqual(asked, ["one", "free"], route);
    release();
    assert.equal((await first).status, 200);
    await (await second).text();
    assert.deepEqual((await history(service)).slice(0, 3), ["user: one", "assistant: ...one", "user: two"], route);
    if (route !== "object") assert.equal((await history(service))[3], "assistant: ...one|two", route);
  }
});

test("an andAgent step and a task of POST /a2a/:id wait for the turn of their conversation that is at work", async (t) => {
  const { service, hold, asked } = await serve(t, {});
  const release = hold("one");
  const first = service.post("/agents/assistant/text", { input: "one", options: { conversationId: "c" } });
  await until(() => asked.length === 1, "the first call of the model");
  const execution = service.post("/workflows/flow/execute", { input: {}, options: { conversationId: "c" } });
  await until(
    async () => (await dataOf(service.get("/workflows"))).some(({ status }: Loose) => status === "running"),
    "the step",
  );
  const a2a = new A2aCaller(service);
  const task = await a2a.send("assistant", { ...said("of a task", { contextId: "c" }), ...now });
  assert.deepEqual(asked, ["one"]);
  release();
  assert.equal((await first).status, 200);
  assert.equal((await dataOf(execution)).status, "completed");
  await until(async () => (await a2a.get("assistant", task.id)).status.state === "TASK_STATE_COMPLETED", "the task");
  const messages = await history(service);
  assert.deepEqual(messages.slice(0, 2), ["user: one", "assistant: ...one"]);
  assert.deepEqual(
    [...messages.slice(2)].map((message) => message.split(": ")[0]),
    ["user", "assistant", "user", "assistant"],
  );
  assert.match(messages[5]!, /^assistant: \.\.\.one\|of a (step|task)\|of a (step|task)$/);
});

test("POST /agents/:id/text lets 16 turns of a conversation wait, and answers more with 409 and Retry-After", async (t) => {
  const { service, hold, asked } = await serve(t, {});
  const release = hold("0");
  const first = send(service, "text", "0");
  await until(() => asked.length === 1, "the first call of the model");
  const others = Array.from({ length: 20 }, (_, index) => send(service, "text", String(index + 1)));
  const refused: Response[] = [];
  for (const reply of others) void reply.then((it) => it.status === 409 && refused.push(it));
  await until(() => refused.length === 4, "those that are refused");
  assert.equal(refused[0]!.headers.get("retry-after"), "1");
  assert.match(await refused[0]!.text(), /16 turns of the conversation are waiting already, try again/);
  release();
  const statuses = (await Promise.all([first, ...others])).map(({ status }) => status);
  assert.equal(statuses.filter((status) => status === 200).length, 17);
  assert.equal(statuses.filter((status) => status === 409).length, 4);
});

test("POST /agents/:id/text that waits for longer than limits.request allows is 409 with Retry-After, and its turn is not stored", async (t) => {
  const { service, hold, asked } = await serve(t, {}, { limits: { request: "2s" } });
  const release = hold("one");
  const first = send(service, "stream", "one");
  await until(() => asked.length === 1, "the first call of the model");
  const second = await send(service, "text", "two");
  assert.equal(second.status, 409);
  assert.equal(second.headers.get("retry-after"), "1");
  assert.match(await second.text(), /take too long/);
  release();
  await (await first).text();
  assert.deepEqual(await history(service), ["user: one", "assistant: ...one"]);
});

test("POST /agents/:id/text whose client leaves while it waits leaves the queue: the model is never asked", async (t) => {
  const { service, hold, asked } = await serve(t, {});
  const release = hold("one");
  const first = send(service, "text", "one");
  await until(() => asked.length === 1, "the first call of the model");
  const before = await inFlight(service);
  const leaving = new AbortController();
  const two = send(service, "text", "two", { signal: leaving.signal }).catch(() => "left");
  const three = send(service, "stream", "three", { signal: leaving.signal }).catch(() => "left");
  await until(async () => (await inFlight(service)) === before + 2, "both in the queue");
  leaving.abort();
  assert.deepEqual(await Promise.all([two, three]), ["left", "left"]);
  await until(async () => (await inFlight(service)) === before, "that they are gone");
  release();
  assert.equal((await first).status, 200);
  assert.equal((await send(service, "text", "four")).status, 200);
  assert.deepEqual(asked, ["one", "four"]);
  assert.equal((await history(service)).length, 4);
});

test("POST /agents/:id/text with memory.turns: reject is 409 while another turn of the conversation is at work", async (t) => {
  const { service, hold, asked } = await serve(t, { turns: "reject" });
  const release = hold("one");
  const first = send(service, "text", "one");
  await until(() => asked.length === 1, "the first call of the model");
  const second = await send(service, "text", "two");
  assert.equal(second.status, 409);
  assert.equal(second.headers.get("retry-after"), "1");
  release();
  assert.equal((await first).status, 200);
  assert.equal((await send(service, "text", "three")).status, 200);
  assert.equal((await history(service)).length, 4);
});

test("POST /agents/:id/stream with memory.turns: interrupt cancels the turn at work, stores what it said, and begins after that", async (t) => {
  const { service, hold, asked } = await serve(t, { turns: "interrupt" });
  hold("one");
  const first = send(service, "stream", "one").then((reply) => reply.text());
  await until(() => asked.length === 1, "the first call of the model");
  hold("two");
  const second = send(service, "text", "two");
  await until(() => asked.length === 2, "the second call of the model");
  assert.match((await first).trim().split("\n\n").at(-1)!, /"type":"abort"/);
  const third = await send(service, "text", "three");
  assert.equal(third.status, 200);
  const replaced = await second;
  assert.equal(replaced.status, 409);
  assert.match(await replaced.text(), /another turn of the conversation has taken the place of this one/);
  const said = "assistant: ...one|two|three";
  assert.deepEqual(await history(service), [
    "user: one",
    "assistant: ...",
    "user: two",
    "assistant: ...",
    "user: three",
    said,
  ]);
});

test("POST /agents/:id/text that only reads the conversation waits for nobody, and nobody waits for it", async (t) => {
  const { service, hold, asked } = await serve(t, { turns: "reject" });
  const memory = { ...options.memory, options: { readOnly: true } };
  const release = hold("one");
  const first = send(service, "text", "one");
  await until(() => asked.length === 1, "the first call of the model");
  assert.equal((await send(service, "text", "two", { more: { options: { memory } } })).status, 200);
  release();
  assert.equal((await first).status, 200);
  const releaseReader = hold("three");
  const reader = send(service, "text", "three", { more: { options: { memory } } });
  await until(() => asked.length === 3, "the reader");
  assert.equal((await send(service, "text", "four")).status, 200);
  releaseReader();
  assert.equal((await reader).status, 200);
});

test("POST /agents/:id/text with two tasks for one sub-agent runs them one after the other in its thread, whatever memory.turns says", async (t) => {
  const delegate = (task: string) => ({ tool: "delegate_task", input: { agentId: "assistant", task } });
  const boss = { replies: [{ call: [delegate("left"), delegate("right")], then: "done" }] };
  const chief = { model: "demo/boss", subAgents: ["assistant"] };
  for (const turns of ["queue", "reject", "interrupt"]) {
    const { service } = await serve(t, { turns }, { agents: { chief }, models: { boss } });
    assert.equal((await dataOf(service.post("/agents/chief/text", { input: "both", options }))).text, "done");
    const said = ["user: left", "assistant: ...left", "user: right", "assistant: ...left|right"];
    assert.deepEqual(await history(service, "c:assistant"), said, turns);
  }
});

test("POST /agents/:id/text, 30 at once on one conversation, gives a history of whole turns, each told of all before it", async (t) => {
  const { service } = await serve(t, { contextLimit: 1000 });
  const inputs = Array.from({ length: 30 }, (_, index) => `q${index}`);
  await Promise.all(
    inputs.map(async (input) => {
      for (;;) {
        const reply = await send(service, "text", input);
        await reply.text();
        if (reply.status === 200) return;
        assert.equal(reply.status, 409);
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
    }),
  );
  const messages = await history(service);
  assert.equal(messages.length, 60);
  const questions: string[] = [];
  for (let index = 0; index < messages.length; index += 2) {
    questions.push(/^user: (q\d+)$/.exec(messages[index]!)![1]!);
    assert.equal(messages[index + 1], `assistant: ...${questions.join("|")}`);
  }
  assert.deepEqual(questions.sort(), inputs.sort());
});

const remove = ({ url }: TestService, id = "c") =>
  fetch(`${url}/api/memory/conversations/${encodeURIComponent(id)}?userId=ada`, { method: "DELETE" });
const isGone = async (service: TestService, id = "c") =>
  (await service.get(`/api/memory/conversations/${encodeURIComponent(id)}/messages`)).status === 404;
/** Long enough for what was under way to be written. */
const settled = async (service: TestService) =>
  until(
    async () => (await dataOf(service.get("/agents"))).every(({ status }: Loose) => status === "idle"),
    "that no agent is at work",
  );

for (const step of [false, true])
  for (const isFirst of [true, false])
    test(`DELETE /api/memory/conversations/:id cancels ${isFirst ? "the first turn" : "a turn"} that is at work${step ? " and stored in steps" : ""}, those that wait, and nothing comes back`, async (t) => {
      const { service, hold, asked } = await serve(t, {});
      const more = { options: { ...options, memory: { ...options.memory, options: step ? STEPS : {} } } };
      if (!isFirst) assert.equal((await send(service, "text", "zero", { more })).status, 200);
      const release = hold("one");
      const first = send(service, "text", "one", { more });
      await until(() => asked.includes("one"), "the first call of the model");
      const second = send(service, "stream", "two", { more });
      const third = send(service, "chat", "three", { more });
      await until(async () => (await inFlight(service)) >= 3, "that the others wait");
      const deleted = await remove(service);
      assert.deepEqual([deleted.status, await deleted.json()], [200, { success: true, data: { deleted: true } }]);
      assert.ok(await isGone(service));
      const reply = await first;
      assert.equal(reply.status, 409);
      assert.match(await reply.text(), /the conversation has been deleted/);
      await (await second).text();
      await (await third).text();
      release();
      await settled(service);
      assert.ok(await isGone(service));
      assert.ok(!asked.includes("two") && !asked.includes("three"));
      // The id may be used again, and knows nothing of what was before.
      assert.equal((await send(service, "text", "four")).status, 200);
      assert.deepEqual(await history(service), ["user: four", "assistant: ...four"]);
    });

test("DELETE /api/memory/conversations/:id ends the stream of an answer with the part abort", async (t) => {
  const { service, hold, asked } = await serve(t, {});
  hold("one");
  const reply = await send(service, "stream", "one");
  await until(() => asked.includes("one"), "the call of the model");
  assert.equal((await remove(service)).status, 200);
  assert.match(await reply.text(), /"type":"abort"/);
  await settled(service);
  assert.ok(await isGone(service));
});

test("DELETE /api/memory/conversations/:id cancels a background run and a resumable chat of the conversation", async (t) => {
  for (const [route, more] of [
    ["text", { background: true }],
    ["chat", { resumableStream: true }],
  ] as const) {
    const { service, hold, asked } = await serve(t, {});
    hold("one");
    const reply = await send(service, route, "one", { more: { options: { ...options, ...more } } });
    assert.ok(reply.status < 300);
    const runId = reply.headers.get("x-run-id");
    await until(() => asked.includes("one"), "the call of the model");
    assert.equal((await remove(service)).status, 200);
    await until(
      async () => (await dataOf(service.get(`/agents/assistant/runs/${runId}`))).status === "cancelled",
      "that the run is cancelled",
    );
    await settled(service);
    assert.ok(await isGone(service));
  }
});

test("DELETE /api/memory/conversations/:id cancels an andAgent step, whose workflow fails", async (t) => {
  const { service, hold, asked } = await serve(t, {});
  hold("of a step");
  const execution = service.post("/workflows/flow/execute", {
    input: {},
    options: { userId: "ada", conversationId: "c" },
  });
  await until(() => asked.includes("of a step"), "the call of the model");
  assert.equal((await remove(service)).status, 200);
  assert.match(((await (await execution).json()) as Loose).error, /the conversation has been deleted/);
  assert.ok(await isGone(service));
});

test("DELETE /api/memory/conversations/:id is 404 where nothing is stored and nothing runs, and for another user while one does", async (t) => {
  const { service, hold, asked } = await serve(t, {});
  assert.equal((await remove(service)).status, 404);
  const release = hold("one");
  const first = send(service, "text", "one");
  await until(() => asked.includes("one"), "the call of the model");
  const other = await fetch(`${service.url}/api/memory/conversations/c?userId=bob`, { method: "DELETE" });
  assert.equal(other.status, 404);
  release();
  assert.equal((await first).status, 200);
  assert.equal((await history(service)).length, 2);
});

test("POST /api/memory/messages/delete: a message that is deleted while it is answered is not stored by the turn of the answer", async (t) => {
  for (const stepwise of [false, true]) {
    const { service, hold, asked } = await serve(t, {});
    assert.equal((await send(service, "text", "zero")).status, 200);
    const release = hold("one");
    const input = [{ id: "mine", role: "user", parts: [{ type: "text", text: "one" }] }];
    const memory = { ...options.memory, options: stepwise ? STEPS : {} };
    const first = send(service, "text", "", { more: { input, options: { memory } } });
    await until(() => asked.includes("one"), "the call of the model");
    const body = { userId: "ada", conversationId: "c", messageIds: ["mine"] };
    await dataOf(service.post("/api/memory/messages/delete", body));
    release();
    assert.equal((await first).status, 200);
    assert.deepEqual(await history(service), ["user: zero", "assistant: ...zero", "assistant: ...zero|one"]);
  }
});
