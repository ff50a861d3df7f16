/** Requests with an `Idempotency-Key`: they are carried out once, and repeated ones get the reply of the first. */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { KeptReplies } from "../../core/storage/kept-replies.ts";
import { createMemoryStore } from "../../core/storage/memory-store.ts";
import type { Commit, Store } from "../../core/storage/store.ts";
import { silent } from "../support/agents.ts";
import { pluginFolder } from "../support/plugin-folder.ts";
import { until } from "../support/probe.ts";
import { dataOf, errorOf, type Loose } from "../support/served-upstream.ts";
import { startService, type TestService } from "../support/service.ts";
import { temporaryFolder } from "../support/storage.ts";
import { SECRET, token } from "../support/tokens.ts";

/** Counts its calls, and waits while the test holds it. */
const CHARGE = `export default { kind: "tool", name: "charge", description: "Charges",
  execute: async ({ amount, size, fail }, { signal }) => {
    const calls = globalThis.penstockTestCharges;
    calls.count++;
    if (calls.held) await calls.held;
    if (signal.aborted) calls.aborted++;
    if (fail) throw new Error("declined");
    return { count: calls.count, amount, text: "x".repeat(size ?? 0) };
  } };`;
const STEP = `export default { kind: "step", execute: async ({ data }) => { globalThis.penstockTestCharges.count++; await globalThis.penstockTestCharges.held; return { count: globalThis.penstockTestCharges.count }; } };`;

interface Charges {
  count: number;
  aborted: number;
  held: Promise<void> | null;
}

async function serve(t: TestContext, rest: object = {}) {
  const charges: Charges = { count: 0, aborted: 0, held: null };
  Object.assign(globalThis, { penstockTestCharges: charges });
  const boss = { replies: [{ call: { tool: "charge", input: { amount: 1 } }, then: "{{ string(result.count) }}" }] };
  const service = await startService(
    t,
    {
      name: "Test",
      version: "1.0.0",
      store: "memory:",
      providers: { demo: { use: "scripted", models: { boss } } },
      memory: { default: {} },
      tools: { charge: { use: "charge" } },
      agents: { assistant: { model: "demo/boss", tools: ["charge"] } },
      workflows: { pay: { steps: [{ id: "one", andThen: { use: "charge" } }] } },
      mcp: { servers: { all: { tools: ["charge"] } } },
      ...rest,
    },
    { plugins: [pluginFolder(t, { "tools/charge.mjs": CHARGE, "steps/charge.mjs": STEP })] },
  );
  const hold = () => {
    let release = () => {};
    charges.held = new Promise((resolve) => {
      release = () => {
        charges.held = null;
        resolve();
      };
    });
    return release;
  };
  return { service, charges, hold };
}

const keyed = (key: string, more: Record<string, string> = {}) => ({ "idempotency-key": key, ...more });
const CHARGE_PATH = "/tools/charge/execute";
const charge = (service: TestService, key: string, input: object = { amount: 1 }, more: Record<string, string> = {}) =>
  service.post(CHARGE_PATH, { input }, keyed(key, more));
const isReplayed = (reply: Response) => reply.headers.get("idempotency-replayed") === "true";

const RUNNING: readonly [path: string, body: object][] = [
  ["/agents/assistant/text", { input: "go" }],
  ["/agents/assistant/object", { input: "go", schema: { type: "object" } }],
  [CHARGE_PATH, { input: { amount: 1 } }],
  ["/workflows/pay/execute", { input: {} }],
  ["/mcp/servers/all/tools/charge", { arguments: { amount: 1 } }],
  ["/api/memory/conversations", { userId: "ada" }],
];

for (const [path, body] of RUNNING)
  test(`POST ${path} with the Idempotency-Key of an earlier request replies as that did and runs nothing`, async (t) => {
    const { service, charges } = await serve(t);
    const first = await service.post(path, body, keyed("k1"));
    const text = await first.text();
    assert.ok(first.ok, text);
    assert.equal(first.headers.get("idempotency-replayed"), null);
    const { count } = charges;
    const second = await service.post(path, body, keyed("k1"));
    assert.equal(second.status, first.status);
    assert.equal(await second.text(), text);
    assert.ok(isReplayed(second));
    assert.equal(second.headers.get("content-type"), first.headers.get("content-type"));
    assert.notEqual(second.headers.get("x-request-id"), first.headers.get("x-request-id"));
    assert.equal(charges.count, count);
    const other = await service.post(path, body, keyed("k2"));
    assert.equal(other.status, first.status);
    assert.ok(!isReplayed(other));
  });

test("POST /tools/:name/execute with an Idempotency-Key that was used for another body, query or path is 422", async (t) => {
  const { service, charges } = await serve(t);
  assert.equal((await charge(service, "k", { amount: 1 })).status, 200);
  const other = await charge(service, "k", { amount: 2 });
  assert.equal(other.status, 422);
  assert.equal(other.headers.get("x-error-code"), "key_reused");
  assert.match(await other.text(), /this Idempotency-Key was used for another request/);
  assert.equal((await service.post(`${CHARGE_PATH}?a=1`, { input: { amount: 1 } }, keyed("k"))).status, 422);
  assert.equal((await service.post("/workflows/pay/execute", { input: { amount: 1 } }, keyed("k"))).status, 422);
  assert.equal(charges.count, 1);
});

test("POST /tools/:name/execute with the Idempotency-Key of a request at work waits for its reply, or is 422 at once", async (t) => {
  const { service, charges, hold } = await serve(t);
  const release = hold();
  const first = charge(service, "k");
  await until(() => charges.count === 1, "the first");
  const others = Array.from({ length: 5 }, () => charge(service, "k"));
  assert.equal((await charge(service, "k", { amount: 2 })).status, 422);
  release();
  const text = await (await first).text();
  for (const other of await Promise.all(others)) {
    assert.ok(isReplayed(other));
    assert.equal(await other.text(), text);
  }
  assert.equal(charges.count, 1);
});

test("POST /tools/:name/execute with an Idempotency-Key is carried out although its client leaves, who gets the reply later", async (t) => {
  const { service, charges, hold } = await serve(t);
  const release = hold();
  const leaving = new AbortController();
  const first = fetch(service.url + CHARGE_PATH, {
    method: "POST",
    headers: { "content-type": "application/json", ...keyed("k") },
    body: JSON.stringify({ input: { amount: 1 } }),
    signal: leaving.signal,
  }).catch(() => "left");
  await until(() => charges.count === 1, "the first");
  leaving.abort();
  assert.equal(await first, "left");
  const second = charge(service, "k");
  release();
  assert.ok(isReplayed(await second));
  assert.deepEqual([charges.count, charges.aborted], [1, 0]);
});

test("POST /tools/:name/execute with an Idempotency-Key runs again after a 500, and repeats a 400", async (t) => {
  const { service, charges } = await serve(t);
  assert.equal((await charge(service, "k", { fail: true })).status, 500);
  const again = await charge(service, "k", { fail: true });
  assert.deepEqual([again.status, isReplayed(again), charges.count], [500, false, 2]);
  const unknown = () => service.post("/tools/none/execute", { input: {} }, keyed("n"));
  assert.equal((await unknown()).status, 404);
  const replayed = await unknown();
  assert.deepEqual([replayed.status, isReplayed(replayed)], [404, true]);
  assert.match(await replayed.text(), /does not exist/);
});

test("POST /agents/:id/text with an Idempotency-Key asks again after a 409 that says when to", async (t) => {
  const { service, charges, hold } = await serve(t, { memory: { default: { turns: "reject" } } });
  const release = hold();
  const body = { input: "go", options: { memory: { userId: "ada", conversationId: "c" } } };
  const first = service.post("/agents/assistant/text", body);
  await until(() => charges.count === 1, "the first");
  assert.equal((await service.post("/agents/assistant/text", body, keyed("k"))).status, 409);
  release();
  assert.equal((await first).status, 200);
  const again = await service.post("/agents/assistant/text", body, keyed("k"));
  assert.deepEqual([again.status, isReplayed(again)], [200, false]);
});

test("POST /tools/:name/execute whose reply is over 1 MiB is carried out once: a repeated request is 409 and says so", async (t) => {
  const { service, charges } = await serve(t);
  const first = await charge(service, "k", { size: 1024 * 1024 });
  assert.equal(first.status, 200);
  assert.ok((await first.text()).length > 1024 * 1024);
  const { status, error } = await errorOf(charge(service, "k", { size: 1024 * 1024 }));
  assert.equal(status, 409);
  assert.match(error, /it was carried out with status 200, and its reply is over the 1 MiB that is kept/);
  assert.equal(charges.count, 1);
});

test("POST /tools/:name/execute with an Idempotency-Key that is too long, or has other than visible ASCII, is 400", async (t) => {
  const { service, charges } = await serve(t);
  for (const key of ["x".repeat(256), "two words", "one, two"]) {
    const { status, error } = await errorOf(charge(service, key));
    assert.equal(status, 400, key);
    assert.match(error, /^Idempotency-Key must be 1 to 255 visible ASCII characters/);
  }
  assert.equal(charges.count, 0);
  assert.equal((await charge(service, "x".repeat(255))).status, 200);
});

test("POST /tools/:name/execute: two users have their own Idempotency-Keys, and nobody who is refused learns of one", async (t) => {
  const { service, charges } = await serve(t, { auth: { mode: "authNext", provider: { use: "jwt", secret: SECRET } } });
  const as = async (sub: string) => ({ authorization: `Bearer ${await token({ sub })}` });
  const [ada, bob] = [await as("ada"), await as("bob")];
  assert.equal((await charge(service, "k", {}, ada)).status, 200);
  const bobs = await charge(service, "k", { amount: 5 }, bob);
  assert.deepEqual([bobs.status, isReplayed(bobs)], [200, false]);
  assert.ok(isReplayed(await charge(service, "k", {}, ada)));
  const refused = await charge(service, "k", {});
  assert.deepEqual([refused.status, isReplayed(refused)], [401, false]);
  assert.equal(charges.count, 2);
});

test("POST /tools/:name/execute replies as before the restart to a request with the same Idempotency-Key", async (t) => {
  const store = `sqlite:${await temporaryFolder(t)}/penstock.db`;
  const before = await serve(t, { store });
  const text = await (await charge(before.service, "k")).text();
  await before.service.stop();
  const { service, charges } = await serve(t, { store });
  const reply = await charge(service, "k");
  assert.ok(isReplayed(reply));
  assert.equal(await reply.text(), text);
  assert.equal(charges.count, 0);
});

test("GET /doc names the header Idempotency-Key and the 422 of the routes that heed it", async (t) => {
  const { service } = await serve(t);
  const { paths }: Loose = await (await service.get("/doc")).json();
  const { parameters, responses } = paths["/tools/{name}/execute"].post;
  assert.ok(parameters.some((parameter: Loose) => parameter.name === "Idempotency-Key" && parameter.in === "header"));
  assert.ok("422" in responses);
  assert.ok(!JSON.stringify(paths["/reload"].post.parameters ?? []).includes("Idempotency-Key"));
});

/** Kept replies over a store whose commits can be made to fail. */
function kept() {
  const inner = createMemoryStore();
  const state = { fails: false, commits: 0 };
  const store: Store = {
    ...inner,
    commit(commit: Commit) {
      state.commits++;
      return state.fails ? Promise.reject(new Error("the disk is full")) : inner.commit(commit);
    },
  };
  return { store, state, replies: new KeptReplies(store, null, silent) };
}

const REQUEST = { id: "r", fingerprint: "f" };
const REPLY = { status: 200, headers: ["content-type", "text/plain"], body: "done" };
const SIGNAL = new AbortController().signal;
const claim = async (replies: KeptReplies, request = REQUEST) => {
  const taken = await replies.take(request, SIGNAL);
  assert.ok("settle" in taken);
  return taken;
};

test("KeptReplies.take frees a key whose process has ended before the reply, and tells the next request what the first may have started", async () => {
  const { store, replies } = kept();
  const first = await claim(replies);
  assert.equal(first.isRepeated, false);
  const restarted = new KeptReplies(store, null, silent);
  const second = await claim(restarted);
  assert.deepEqual([second.isRepeated, second.runId], [true, first.runId]);
  await first.settle({ ...REPLY, body: "late" });
  await second.settle(REPLY);
  const third = new KeptReplies(store, null, silent);
  assert.deepEqual(await third.take(REQUEST, SIGNAL), REPLY);
});

test("KeptReplies.take knows a reply that could not be stored when its request ended, and stores it later", async () => {
  const { store, state, replies } = kept();
  const first = await claim(replies);
  state.fails = true;
  await first.settle(REPLY);
  assert.deepEqual(await replies.take(REQUEST, SIGNAL), REPLY);
  state.fails = false;
  replies.start();
  const elsewhere = new KeptReplies(store, null, silent);
  await until(async () => JSON.parse((await store.get("ik/r"))!.value).reply !== undefined, "the row");
  assert.deepEqual(await elsewhere.take(REQUEST, SIGNAL), REPLY);
  await replies.close();
});

test("KeptReplies.take and its reply are two commits, and rows.removeBefore removes both rows when their time is over", async () => {
  const { store, state, replies } = kept();
  await (await claim(replies)).settle(REPLY);
  assert.equal(state.commits, 2);
  await (await claim(replies, { id: "s", fingerprint: "f" })).settle({ ...REPLY, status: 500 });
  const rows = async () =>
    (await Promise.all(["ik/", "it/"].map((prefix) => store.scan({ prefix, limit: 10 })))).flat().map(({ key }) => key);
  assert.equal((await rows()).length, 2);
  await replies.rows.removeBefore(Date.now() - 60_000, SIGNAL);
  assert.equal((await rows()).length, 2);
  await replies.rows.removeBefore(Date.now() + 60_000, SIGNAL);
  assert.deepEqual(await rows(), []);
});

test("POST /workflows/:id/execute with the Idempotency-Key of a request that was cut at limits.request gets the outcome of the same execution", async (t) => {
  const { service, charges, hold } = await serve(t, { server: { limits: { request: "1s" } } });
  const release = hold();
  const first = await service.post("/workflows/pay/execute", { input: {} }, keyed("k"));
  assert.equal(first.status, 503);
  const id = first.headers.get("x-execution-id");
  const second = service.post("/workflows/pay/execute", { input: {} }, keyed("k"));
  release();
  const { executionId, status } = await dataOf(second);
  assert.deepEqual([executionId, status], [id, "completed"]);
  assert.equal(charges.count, 1);
  assert.ok(isReplayed(await service.post("/workflows/pay/execute", { input: {} }, keyed("k"))));
});

test("POST /tools/:name/execute with an Idempotency-Key: the 409 that asks for approval is not kept, the approved call runs once", async (t) => {
  const { service, charges } = await serve(t, { tools: { charge: { use: "charge", approval: true } } });
  const asked = await charge(service, "k");
  assert.equal(asked.status, 409);
  const id = asked.headers.get("x-approval-id")!;
  assert.equal((await service.post(`/approvals/${id}`, { approved: true })).status, 200);
  const ran = await charge(service, "k", undefined, { "x-approval-id": id });
  assert.deepEqual([ran.status, isReplayed(ran), charges.count], [200, false, 1]);
  const again = await charge(service, "k", undefined, { "x-approval-id": id });
  assert.deepEqual([again.status, isReplayed(again), charges.count], [200, true, 1]);
});
