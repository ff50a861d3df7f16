/** Streams with an `Idempotency-Key`: those who ask again read the stream that the first has begun. What a key has begun is found again after a crash. */
import assert from "node:assert/strict";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { pluginFolder } from "../support/plugin-folder.ts";
import { until } from "../support/probe.ts";
import { dataOf, errorOf, type Loose } from "../support/served-upstream.ts";
import { parseEvents, startService, type TestService } from "../support/service.ts";
import { temporaryFolder } from "../support/storage.ts";
import { SECRET, token } from "../support/tokens.ts";

interface World {
  /** The keys of the calls. */
  calls: string[];
  held: Promise<void> | null;
  /** How often the model fails from now on. */
  failures: number;
}
const world: World = { calls: [], held: null, failures: 0 };
Object.assign(globalThis, { penstockTestStreams: world });

const PLUGINS = {
  "tools/charge.mjs": `export default { kind: "tool", name: "charge", description: "Charges", execute: async (input, { idempotencyKey }) => {
    const world = globalThis.penstockTestStreams;
    world.calls.push(idempotencyKey); await world.held; return { charged: world.calls.length }; } };`,
  "steps/charge.mjs": `export default { kind: "step", execute: async ({ idempotencyKey }) => {
    const world = globalThis.penstockTestStreams;
    world.calls.push(idempotencyKey); await world.held; return { charged: 1 }; } };`,
  // Charges once, then says so.
  "providers/charging.mjs": `let ids = 0;
  const usage = { inputTokens: { total: 1 }, outputTokens: { total: 1 } };
  export default { kind: "provider", create: () => ({ languageModel: (modelId) => ({
    specificationVersion: "v3", provider: "charging", modelId, supportedUrls: {},
    doGenerate: async () => { throw new Error("not used"); },
    async doStream({ prompt, tools }) {
      const world = globalThis.penstockTestStreams;
      if (world.failures-- > 0) throw new Error("down");
      const isLast = !tools?.length || prompt.some(({ role }) => role === "tool");
      const text = tools?.length ? "charged" : '{"n":1}';
      const said = [{ type: "text-start", id: "t" }, { type: "text-delta", id: "t", delta: isLast ? text : "one moment" }, { type: "text-end", id: "t" }];
      if (!isLast) said.push({ type: "tool-call", toolCallId: "call-" + ++ids, toolName: "charge", input: "{}" });
      const finishReason = { unified: isLast ? "stop" : "tool-calls", raw: undefined };
      const parts = [{ type: "stream-start", warnings: [] }, ...said, { type: "finish", usage, finishReason }];
      return { stream: new ReadableStream({ start(to) { for (const part of parts) to.enqueue(part); to.close(); } }) };
    } }) }) };`,
};

const MANIFEST = {
  name: "Test",
  version: "1.0.0",
  store: "memory:",
  providers: { fake: { use: "charging", retries: 0 } },
  memory: { default: {} },
  tools: { charge: { use: "charge" } },
  agents: {
    assistant: { model: "fake/m", tools: ["charge"] },
    durable: { model: "fake/m", tools: ["charge"], durable: true },
  },
  workflows: {
    pay: { steps: [{ id: "one", andThen: { use: "charge" } }] },
    asks: {
      steps: [
        { id: "ask", andThen: { suspend: { reason: "Go on?" } } },
        { id: "one", andThen: { use: "charge" } },
      ],
    },
  },
};

async function serve(t: TestContext, rest: object = {}): Promise<TestService> {
  Object.assign(world, { calls: [], held: null, failures: 0 });
  return startService(t, { ...MANIFEST, ...rest }, { plugins: [pluginFolder(t, PLUGINS)] });
}

/** Serves it again and again on one SQLite file; the process before is gone without a word. */
async function restarts(t: TestContext) {
  const store = `sqlite:${join(await temporaryFolder(t), "test.db")}`;
  let running: TestService | null = null;
  return async () => {
    await running?.kill();
    running = await serve(t, { store });
    return running;
  };
}

function hold(): () => void {
  let release = () => {};
  world.held = new Promise((resolve) => {
    release = () => {
      world.held = null;
      resolve();
    };
  });
  return release;
}

const keyed = (key: string, more: Record<string, string> = {}) => ({ "idempotency-key": key, ...more });
const isReplayed = (reply: Response) => reply.headers.get("idempotency-replayed") === "true";
const eventsOf = async (reply: Response) => {
  assert.equal(reply.status, 200, await reply.clone().text());
  return parseEvents(await reply.text());
};

/** The events of a stream as they come. */
function openEvents(reply: Response) {
  const source = reply.body!.pipeThrough(new TextDecoderStream())[Symbol.asyncIterator]();
  let text = "";
  const rest = async () => {
    for (let chunk = await source.next(); chunk.done !== true; chunk = await source.next()) text += chunk.value;
    return parseEvents(text);
  };
  return {
    rest,
    async next() {
      while (!text.includes("\n\n")) {
        const chunk = await source.next();
        assert.ok(chunk.done !== true, "the stream goes on");
        text += chunk.value;
      }
      const [first] = parseEvents(text);
      text = text.slice(text.indexOf("\n\n") + 2);
      return first;
    },
  };
}

const STREAMS: readonly [path: string, body: Loose, calls: number][] = [
  ["/agents/assistant/stream", { input: "go" }, 1],
  ["/agents/assistant/chat", { input: "go" }, 1],
  ["/agents/assistant/stream-object", { input: "go", schema: { type: "object" } }, 0],
  ["/workflows/pay/stream", { input: {} }, 1],
];

for (const [path, body, calls] of STREAMS)
  test(`POST ${path} with an Idempotency-Key: all who ask read one stream, while it goes on and after its end; another body is 422`, async (t) => {
    const service = await serve(t);
    const release = hold();
    const first = await service.post(path, body, keyed("k"));
    assert.equal(isReplayed(first), false);
    if (calls > 0) await until(() => world.calls.length === 1, "the call");
    const second = await service.post(path, body, keyed("k"));
    const [one, two] = [openEvents(first), openEvents(second)];
    // What was said before comes at once.
    const begun = [await one.next(), await two.next()];
    assert.deepEqual(begun[0], begun[1]);
    const other = await service.post(path, { ...body, input: { other: 1 } }, keyed("k"));
    assert.ok([400, 422].includes(other.status), `${other.status}`);
    const another = await errorOf(service.post(path, { ...body, options: { userId: "eve" } }, keyed("k")));
    assert.equal(another.status, 422, another.error);
    release();
    const [all, again] = await Promise.all([one.rest(), two.rest()]);
    assert.deepEqual(again, all);
    assert.ok(all.length > 0);
    const third = await service.post(path, body, keyed("k"));
    assert.deepEqual([isReplayed(second), isReplayed(third)], [true, true]);
    assert.deepEqual(await openEvents(third).rest(), [begun[0], ...all]);
    assert.equal(world.calls.length, calls, "it ran once");
  });

test("POST /agents/:id/stream with one Idempotency-Key forty times at once is one run", async (t) => {
  const service = await serve(t);
  const replies = await Promise.all(
    Array.from({ length: 40 }, () => service.post("/agents/assistant/stream", { input: "go" }, keyed("k"))),
  );
  assert.equal(new Set(replies.map((reply) => reply.headers.get("x-run-id"))).size, 1);
  const all = await Promise.all(replies.map(eventsOf));
  for (const events of all) assert.deepEqual(events, all[0]);
  assert.equal(world.calls.length, 1);
});

test("POST /agents/:id/stream with an Idempotency-Key goes on without its client, who reads all of it with the key, also from the next process", async (t) => {
  const start = await restarts(t);
  const first = await start();
  const release = hold();
  const leaving = new AbortController();
  const begun = await fetch(`${first.url}/agents/assistant/stream`, {
    method: "POST",
    headers: { "content-type": "application/json", ...keyed("k") },
    body: JSON.stringify({ input: "go" }),
    signal: leaving.signal,
  });
  await until(() => world.calls.length === 1, "the call");
  leaving.abort();
  const [key] = world.calls;
  const second = await start();
  release();
  const again = await second.post("/agents/assistant/stream", { input: "go" }, keyed("k"));
  assert.equal(again.headers.get("x-run-id"), begun.headers.get("x-run-id"));
  const parts = (await eventsOf(again)).map(({ data }) => JSON.parse(data));
  assert.deepEqual(
    parts.map(({ type }) => type).filter((type) => !type.startsWith("text-")),
    ["start", "start-step", "tool-call", "tool-result", "finish-step", "start-step", "finish-step", "finish"],
  );
  assert.deepEqual(new Set(world.calls), new Set([key]), "a call that was under way runs again with its key");
});

test("POST /agents/:id/stream and /text with the Idempotency-Key of a request whose run failed before anything was told runs again", async (t) => {
  const service = await (await restarts(t))();
  for (const path of ["/agents/assistant/stream", "/agents/durable/text"]) {
    world.failures = 1;
    const failed = await service.post(path, { input: "go" }, keyed(path));
    assert.equal(failed.status, 500, `${await failed.text()}`);
    const again = await service.post(path, { input: "go" }, keyed(path));
    assert.equal(again.status, 200);
    assert.match(await again.text(), /charged/);
    assert.notEqual(again.headers.get("x-run-id"), failed.headers.get("x-run-id"));
  }
});

test("POST /agents/:id/stream: two users have their own Idempotency-Keys, and neither reads the other's stream", async (t) => {
  const auth = { mode: "authNext", provider: { use: "jwt", secret: SECRET } };
  const service = await serve(t, { auth });
  const ids = await Promise.all(
    ["ada", "bob"].map(async (sub) => {
      const authorization = `Bearer ${token({ sub })}`;
      const reply = await service.post("/agents/assistant/stream", { input: "go" }, keyed("k", { authorization }));
      await eventsOf(reply);
      assert.equal(isReplayed(reply), false);
      return reply.headers.get("x-run-id");
    }),
  );
  assert.notEqual(ids[0], ids[1]);
  assert.equal(world.calls.length, 2);
});

test("POST /agents/:id/text of a durable agent with an Idempotency-Key replies with the run that a dead process had begun", async (t) => {
  const start = await restarts(t);
  const first = await start();
  const expected = await dataOf(first.post("/agents/durable/text", { input: "go" }, keyed("another")));
  const release = hold();
  first.post("/agents/durable/text", { input: "go" }, keyed("k")).catch(() => {});
  await until(() => world.calls.length === 2, "the call");
  const before = world.calls[1];
  const second = await start();
  release();
  const { toolCalls, toolResults, ...rest } = await dataOf(
    second.post("/agents/durable/text", { input: "go" }, keyed("k")),
  );
  const without = (all: Loose[]) => all.map((each) => ({ ...each, toolCallId: "" }));
  assert.deepEqual(
    { ...rest, toolCalls: without(toolCalls), toolResults: without(toolResults) },
    { ...expected, toolCalls: without(expected.toolCalls), toolResults: without(expected.toolResults) },
  );
  assert.deepEqual(world.calls, [before], "under the same key");
});

test("POST /workflows/:id/execute in the background with the Idempotency-Key of a request whose process has died is 202 with the same execution", async (t) => {
  const start = await restarts(t);
  const body = { input: {}, options: { background: true } };
  const first = await start();
  const release = hold();
  const begun = ((await (await first.post("/workflows/pay/execute", body, keyed("k"))).json()) as Loose).data;
  // The reply was lost with its process.
  const { store } = first.service;
  const [row] = await store.scan({ prefix: "ik/", limit: 1 });
  const { reply: _, ...claimed } = JSON.parse(row!.value);
  await store.commit({ put: [[row!.key, JSON.stringify({ ...claimed, process: "gone" })]] });
  const second = await start();
  release();
  const again = await second.post("/workflows/pay/execute", body, keyed("k"));
  assert.equal(again.status, 202);
  assert.equal(((await again.json()) as Loose).data.executionId, begun.executionId);
  assert.equal((await dataOf(second.get("/workflows/executions"))).length, 1);
});

for (const command of ["resume", "replay"])
  test(`POST /workflows/:id/executions/:executionId/${command} with the Idempotency-Key of a request whose process has died replies with what that one did`, async (t) => {
    const start = await restarts(t);
    const first = await start();
    const { executionId } = await dataOf(first.post("/workflows/asks/execute", { input: {} }));
    const path = `/workflows/asks/executions/${executionId}/${command}`;
    const body = command === "resume" ? { resumeData: { n: 1 } } : { stepId: "one" };
    if (command === "replay") await dataOf(first.post(path.replace("replay", "resume"), {}));
    const before = world.calls.length;
    const release = hold();
    first.post(path, body, keyed("k")).catch(() => {});
    await until(() => world.calls.length > before, "the step");
    const second = await start();
    release();
    const outcome = await dataOf(second.post(path, body, keyed("k")));
    assert.deepEqual([outcome.status, outcome.result], ["completed", { charged: 1 }]);
    assert.equal(outcome.executionId === executionId, command === "resume");
    const executions = await dataOf(second.get("/workflows/executions"));
    assert.equal(executions.length, command === "resume" ? 1 : 2);
    const replayed = await second.post(path, body, keyed("k"));
    assert.ok(isReplayed(replayed));
  });

const CHAT = "/v1/chat/completions";
const RESPONSES = "/v1/responses";
const openaiBody = (path: string, model = "assistant") =>
  path === CHAT ? { model, messages: [{ role: "user", content: "go" }] } : { model, input: "go" };
const textOf = async (reply: Response) => {
  assert.equal(reply.status, 200, await reply.clone().text());
  return reply.text();
};

for (const path of [CHAT, RESPONSES])
  test(`POST ${path} with stream and an Idempotency-Key: all who ask read one stream, while it goes on and after its end; another body is 422`, async (t) => {
    const service = await serve(t);
    const release = hold();
    const body = { ...openaiBody(path), stream: true };
    const first = await service.post(path, body, keyed("k"));
    await until(() => world.calls.length === 1, "the call");
    const second = await service.post(path, body, keyed("k"));
    const { status, error } = await errorOf(service.post(path, { ...body, top_p: 0.5 }, keyed("k")));
    assert.deepEqual([status, (error as Loose).code], [422, "key_reused"]);
    release();
    const [one, two] = await Promise.all([textOf(first), textOf(second)]);
    const third = await service.post(path, body, keyed("k"));
    assert.deepEqual([first, second, third].map(isReplayed), [false, true, true]);
    assert.match(one, /one moment[\s\S]*charged[\s\S]*data: \[DONE\]/);
    assert.equal(two, one);
    assert.equal(await textOf(third), one);
    assert.equal(world.calls.length, 1, "it ran once");
    const other = await service.post(path, body, keyed("other"));
    assert.notEqual((await textOf(other)).replaceAll(/\d/g, ""), one.replaceAll(/\d/g, ""), "it has an id of its own");
  });

for (const path of [CHAT, RESPONSES, "/v1/responses/compact"])
  test(`POST ${path} with an Idempotency-Key: the reply to a repeated request is that of the first; another body is 422`, async (t) => {
    const service = await serve(t);
    const body = openaiBody(path);
    const [first, second] = await Promise.all([1, 2].map(() => service.post(path, body, keyed("k"))));
    const texts = [await textOf(first!), await textOf(second!)];
    assert.equal(texts[1], texts[0]);
    assert.deepEqual([first!, second!].map(isReplayed).sort(), [false, true]);
    const streamed = await service.post(
      path,
      { ...body, ...(path.endsWith("compact") ? { instructions: "x" } : { stream: true }) },
      keyed("k"),
    );
    assert.equal(streamed.status, 422, await streamed.text());
    assert.equal(world.calls.length, path.endsWith("compact") ? 0 : 1);
    const other = await textOf(await service.post(path, body, keyed("other")));
    assert.notEqual(JSON.parse(other).id, JSON.parse(texts[0]!).id);
  });

test("POST /v1/responses with stream and an Idempotency-Key goes on without its client and is stored; the next process streams all of it to who asks with the key", async (t) => {
  const start = await restarts(t);
  const first = await start();
  const body = { ...openaiBody(RESPONSES), stream: true };
  const leave = async (key: string, calls: number) => {
    const leaving = new AbortController();
    const reply = await fetch(`${first.url}${RESPONSES}`, {
      method: "POST",
      headers: { "content-type": "application/json", ...keyed(key) },
      body: JSON.stringify(body),
      signal: leaving.signal,
    });
    const begin = await openEvents(reply).next();
    await until(() => world.calls.length === calls, "the call");
    leaving.abort();
    return JSON.parse(begin!.data).response.id;
  };
  const release = hold();
  const left = await leave("left", 1);
  release();
  await until(async () => (await first.get(`${RESPONSES}/${left}`)).status === 200, "the stored response");
  const stored = (await (await first.get(`${RESPONSES}/${left}`)).json()) as Loose;
  assert.equal(stored.status, "completed");
  const again = hold();
  const id = await leave("k", 2);
  const key = world.calls[1];
  const second = await start();
  again();
  const text = await textOf(await second.post(RESPONSES, body, keyed("k")));
  const ended = JSON.parse(parseEvents(text).find(({ data }) => data.includes('"response.completed"'))!.data).response;
  assert.deepEqual([ended.id, ended.status, ended.output.at(-1).content[0].text], [id, "completed", "charged"]);
  assert.deepEqual(await (await second.get(`${RESPONSES}/${id}`)).json(), ended);
  assert.deepEqual(world.calls, [key], "a call that was under way runs again with its key");
});

for (const stream of [false, true])
  test(`POST /v1/responses with background${stream ? ", stream" : ""} and an Idempotency-Key, many times at once and after its process has died, is one response`, async (t) => {
    const start = await restarts(t);
    const first = await start();
    const body = { ...openaiBody(RESPONSES), background: true, stream };
    const ids = async (service: TestService) => {
      const texts = await Promise.all(
        Array.from({ length: 5 }, async () => textOf(await service.post(RESPONSES, body, keyed("k")))),
      );
      const all = stream
        ? texts.map((text) => JSON.parse(parseEvents(text).at(0)!.data).response)
        : texts.map((text) => JSON.parse(text));
      return new Set(all.map(({ id }) => id));
    };
    const before = await ids(first);
    assert.equal(before.size, 1);
    // The reply was lost with its process.
    const { store } = first.service;
    const [row] = await store.scan({ prefix: "ik/", limit: 1 });
    const { reply: _, ...claimed } = JSON.parse(row!.value);
    await store.commit({ put: [[row!.key, JSON.stringify({ ...claimed, process: "gone" })]] });
    const second = await start();
    assert.deepEqual(await ids(second), before);
    const [id] = before;
    await until(
      async () => ((await (await second.get(`${RESPONSES}/${id}`)).json()) as Loose).status === "completed",
      "the end",
    );
    assert.equal((await dataOf(second.get("/agents/assistant/runs"))).length, 1);
  });

for (const [path, store] of [[CHAT], [RESPONSES, true], [RESPONSES, false]] as const)
  test(`POST ${path} with stream${store === undefined ? "" : `, store: ${store}`} and an Idempotency-Key: clients that leave while the run is silent leave nothing behind that reads it, but for one that stores the response`, async (t) => {
    // The call must not end by itself, and its readers with it, while the test waits for them.
    const service = await serve(t, { tools: { charge: { use: "charge", timeout: "10m" } } });
    const release = hold();
    const body = { ...openaiBody(path), stream: true, ...(store !== undefined && { store }) };
    const { uses } = service.booted.generation!;
    const leaving = new AbortController();
    for (let client = 0; client < 5; client++) {
      const reply = await fetch(`${service.url}${path}`, {
        method: "POST",
        headers: { "content-type": "application/json", ...keyed("k") },
        body: JSON.stringify(body),
        signal: leaving.signal,
      });
      await openEvents(reply).next();
    }
    await until(() => world.calls.length === 1, "the call");
    assert.ok(uses.count > 7, String(uses.count));
    leaving.abort();
    // The run counts twice: as its execution and as its step.
    const left = store === true ? 3 : 2;
    await until(() => uses.count === left, `${left} uses`);
    release();
    assert.match(await textOf(await service.post(path, body, keyed("k"))), /charged/);
    await until(() => uses.count === 0, "the end");
  });

test("POST /v1/chat/completions with stream and the Idempotency-Key of a request that failed before anything was told runs again", async (t) => {
  const service = await serve(t);
  for (const path of [CHAT, RESPONSES]) {
    world.failures = 1;
    const body = { ...openaiBody(path), stream: true };
    const failed = await service.post(path, body, keyed(path));
    assert.equal(failed.status, 500, await failed.text());
    assert.match(await textOf(await service.post(path, body, keyed(path))), /charged/);
  }
});
