/** `POST /reload`: what waits in the service, for a person or for a turn, and what it has promised, is there after a reload. */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { approvalManifest, PAYS, ran, serveApprovals } from "../support/approvals.ts";
import { eventually } from "../support/event-reader.ts";
import { pluginFolder } from "../support/plugin-folder.ts";
import { changesOf, metric, says } from "../support/reload.ts";
import { dataOf, type Loose } from "../support/served-upstream.ts";
import { manifestWith, startService, type TestService } from "../support/service.ts";

const HOLD = `export default { kind: "tool", name: "hold", description: "Waits for the test",
  execute: async () => { await globalThis.penstockTestHeld; return {}; } };`;

/** A model that says "old" once it is released. */
async function serveHeld(t: TestContext, { agent = {}, ...rest }: { agent?: object; memory?: object } = {}) {
  let release = () => {};
  const hold = () => {
    const held = new Promise<void>((resolve) => {
      release = resolve;
    });
    Object.assign(globalThis, { penstockTestHeld: held });
  };
  hold();
  const replies = [{ call: { tool: "hold", input: {} }, then: "old" }];
  const providers = { demo: { use: "scripted", replies } };
  const manifest = manifestWith(
    { tools: ["hold"], ...agent },
    { providers, tools: { hold: { use: "hold" } }, ...rest },
  );
  const service = await startService(t, manifest, { plugins: [pluginFolder(t, { "tools/hold.mjs": HOLD })] });
  return { service, hold, release: () => release() };
}

/** Waits until so many requests wait, beside the one that asks. */
const inFlight = (service: TestService, count: number) =>
  eventually(
    async () => (await metric(service, "penstock_http_requests_in_flight")) === count + 1,
    `${count} requests in flight`,
  );

test("POST /reload: a run that waits for an approval goes on though the conversations of its agent are in another memory now", async (t) => {
  ran.splice(0);
  const manifest = (memory: string) => {
    const assistant = { name: "A", description: "A", instructions: "A", model: "demo/echo", tools: ["pay"], memory };
    const demo = { use: "scripted", replies: PAYS };
    return { agents: { assistant }, memory: { default: {}, notes: {} }, providers: { demo } };
  };
  const service = await serveApprovals(t, manifest("default"));
  const options = { memory: { conversationId: "c", userId: "ada" } };
  const { runId, approvals } = await dataOf(service.post("/agents/assistant/text", { input: "pay 5", options }));
  await changesOf(service, approvalManifest(manifest("notes")));
  assert.equal((await service.post(`/approvals/${approvals[0].approvalId}`, { approved: true })).status, 200);
  const run = async () => dataOf(service.get(`/agents/assistant/runs/${runId}`));
  await eventually(async () => (await run()).status === "completed", "the end");
  assert.deepEqual(ran, [5]);
});

test("POST /reload: approvals that are open can be answered, with an input that fits the tools of now, and the step goes on", async (t) => {
  ran.splice(0);
  const workflows = { one: { steps: [{ id: "pay", andThen: { tool: "pay", input: { amount: 5 } } }] } };
  const service = await serveApprovals(t, { workflows, ...says("old") });
  const { executionId, status } = await dataOf(service.post("/workflows/one/execute", { input: {} }));
  assert.equal(status, "suspended");
  for (const amount of [6, 7])
    assert.equal((await service.post("/tools/pay/execute", { input: { amount } })).status, 409);
  const open: Loose[] = await dataOf(service.get("/approvals"));
  assert.deepEqual(open.map(({ input }) => input.amount).sort(), [5, 6, 7]);
  const [ofStep, ofGone, ofCall] = [5, 6, 7].map(
    (amount) => open.find(({ input }) => input.amount === amount).approvalId,
  );
  const answer = (id: string, amount: number) =>
    service.post(`/approvals/${id}`, { approved: true, input: { amount } });

  const without = { ...approvalManifest({ ...says("old") }), tools: {} };
  assert.deepEqual(await changesOf(service, without), ["removed tools.pay", "removed workflows.one"]);
  assert.deepEqual(await dataOf(service.get("/approvals")), open);
  for (const _ of ["once", "twice"]) {
    const refused = await answer(ofGone, 9);
    assert.equal(refused.status, 409);
    assert.match(await refused.text(), /withdrawn: tool_removed/);
  }

  await changesOf(service, approvalManifest({ workflows, ...says("new") }));
  assert.equal((await answer(ofStep, 9)).status, 200);
  await eventually(() => ran.length === 1, "the step");
  assert.equal((await answer(ofCall, 8)).status, 200);
  const call = await service.post("/tools/pay/execute", { input: { amount: 7 } }, { "x-approval-id": ofCall });
  assert.equal(call.status, 200, await call.text());
  assert.deepEqual(ran, [9, 8]);
  const state = () => dataOf(service.get(`/workflows/one/executions/${executionId}/state`));
  await eventually(async () => (await state()).status === "completed", "the end");
});

test("POST /reload: turns of a conversation that wait go on waiting, and those of the new manifest queue behind them", async (t) => {
  const memory = { memory: { chat: {} } };
  const { service, release } = await serveHeld(t, { ...memory, agent: { memory: "chat" } });
  const say = async (input: string) => {
    const options = { memory: { userId: "ada", conversationId: "c" } };
    return (await dataOf(service.post("/agents/assistant/text", { input, options }))).text;
  };
  const turns = [say("one")];
  await inFlight(service, 1);
  turns.push(say("two"));
  await inFlight(service, 2);
  await changesOf(service, manifestWith({ memory: "chat" }, { ...says("new"), ...memory }));
  turns.push(say("three"));
  await inFlight(service, 3);
  release();
  assert.deepEqual(await Promise.all(turns), ["old", "old", "new"]);
  const { messages } = await dataOf(service.get("/api/memory/conversations/c/messages?agentId=assistant"));
  assert.deepEqual(
    messages.map(({ parts }: Loose) => parts.map(({ text = "" }: Loose) => text).join("")),
    ["one", "old", "two", "old", "three", "new"],
  );
});

test("POST /reload: a request with the Idempotency-Key of an earlier one gets the reply of before, also while that is at work", async (t) => {
  const { service, release, hold } = await serveHeld(t);
  const ask = (key: string) => service.post("/agents/assistant/text", { input: "hello" }, { "idempotency-key": key });
  const told = async (reply: Response) =>
    [reply.headers.get("idempotency-replayed"), ((await reply.json()) as Loose).data?.text] as const;

  release();
  assert.deepEqual(await told(await ask("ended")), [null, "old"]);
  hold();
  const running = ask("running");
  await inFlight(service, 1);
  await changesOf(service, manifestWith({}, says("new")));
  assert.deepEqual(await told(await ask("ended")), ["true", "old"]);
  const repeated = ask("running");
  await inFlight(service, 2);
  assert.deepEqual(await told(await ask("other")), [null, "new"]);
  release();
  assert.deepEqual(await told(await running), [null, "old"]);
  assert.deepEqual(await told(await repeated), ["true", "old"]);
  assert.equal((await dataOf(service.get("/agents/assistant/history"))).total, 3);
});

/** A run in the background. */
async function background(service: TestService, input: string): Promise<() => Promise<Loose>> {
  const reply = await service.post("/agents/assistant/text", { input, options: { background: true } });
  assert.equal(reply.status, 202, await reply.clone().text());
  const { runId } = ((await reply.json()) as Loose).data;
  return () => dataOf(service.get(`/agents/assistant/runs/${runId}`));
}

test("POST /reload: a run in the background ends with the agent that it began with, and the next begins with the new one", async (t) => {
  const { service, release } = await serveHeld(t);
  const before = await background(service, "one");
  await eventually(async () => (await before()).status === "running", "the begin");
  await changesOf(service, manifestWith({}, says("new")));
  assert.equal((await before()).status, "running");
  const after = await background(service, "two");
  await eventually(async () => (await after()).output === "new", "the run that began after the reload");
  release();
  await eventually(async () => (await before()).output === "old", "the run that began before the reload");
});

test("POST /reload: a run that waits for approval goes on with the agent of the new manifest, also after one without its agent", async (t) => {
  ran.splice(0);
  const paying = (then: string) => {
    const replies = [{ call: { tool: "pay", input: { amount: 5 } }, then }];
    const assistant = { model: "demo/echo", memory: false, tools: ["pay"] };
    return { providers: { demo: { use: "scripted", replies } }, agents: { assistant } };
  };
  const service = await serveApprovals(t, paying("old"));
  const run = await background(service, "one");
  await eventually(async () => (await run()).status === "waiting", "the question");
  await changesOf(service, approvalManifest({ agents: { other: { model: "demo/echo", memory: false } } }));
  await changesOf(service, approvalManifest(paying("new")));
  const [{ approvalId }] = (await run()).approvals;
  await dataOf(service.post(`/approvals/${approvalId}`, { approved: true }));
  await eventually(async () => (await run()).output === "new", "the end");
  assert.deepEqual(ran, [5]);
});
