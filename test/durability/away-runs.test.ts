/** Kept runs of agents while their PostgreSQL is away: one that was acknowledged goes on when it is back, and ends as it would have. */
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { PAY_PLUGIN, PAYS, ran } from "../support/approvals.ts";
import { startCutProxy } from "../support/cut-proxy.ts";
import { eventually } from "../support/event-reader.ts";
import { heldModel } from "../support/held-model.ts";
import { pluginFolder } from "../support/plugin-folder.ts";
import { addressOf, NO_POSTGRES, type PostgresServer, sharedPostgres, urlThrough } from "../support/postgres.ts";
import { dataOf, type Loose } from "../support/served-upstream.ts";
import { startService, type TestService } from "../support/service.ts";

const server = await sharedPostgres();
const db = server as PostgresServer;
const skip = server === null ? NO_POSTGRES : false;
const file = { after } as never;
after(() => server?.close());

const model = heldModel(file);
const paying = pluginFolder(file, PAY_PLUGIN);
const url = server === null ? "" : await db.createDatabase();

/** A service of the manifest behind a proxy of its own. */
async function begin() {
  const proxy = await startCutProxy(addressOf(url));
  after(() => proxy.close());
  const manifest = {
    name: "Test",
    version: "1.0.0",
    store: urlThrough(proxy.port, url),
    providers: { held: model.settings, demo: { use: "scripted", replies: PAYS } },
    memory: { default: {} },
    tools: { pay: { use: "pay", approval: true } },
    workflows: { pays: { steps: [{ id: "pay", andThen: { tool: "pay", input: { amount: 7 } } }] } },
    agents: {
      keeper: { model: "held/any", durable: true },
      clerk: { model: "demo/echo", tools: ["pay"], durable: true, memory: false },
    },
  };
  return { proxy, service: await startService(file, manifest, { plugins: [model.plugins, paying] }) };
}
const [one, other] = server === null ? [] : await Promise.all([begin(), begin()]);

const ask = ({ service }: { service: TestService }, conversationId: string, input: string, options: object = {}) =>
  service.post("/agents/keeper/text", {
    input,
    options: { background: true, memory: { userId: "ada", conversationId }, ...options },
  });
const acknowledged = async (reply: Promise<Response>): Promise<string> =>
  assert.equal((await reply).status, 202) ?? ((await (await reply).json()) as Loose).data.runId;
const runs = (): Promise<Loose[]> => dataOf(other!.service.get("/agents/keeper/runs?limit=100"));
const runOf = (id: string): Promise<Loose> => dataOf(other!.service.get(`/agents/keeper/runs/${id}`));
const isOver = (id: string) =>
  eventually(
    async () => (await runOf(id)).endTime !== null && (await runOf(id)).status !== "running",
    `the end of ${id}`,
  );
async function said(id: string): Promise<string[]> {
  const reply = other!.service.get(`/api/memory/conversations/${id}/messages?agentId=keeper&userId=ada`);
  const { messages } = await dataOf(reply);
  return messages.map(({ role, parts }: Loose) => `${role}: ${parts.map(({ text = "" }: Loose) => text).join("")}`);
}
const isAway = ({ service }: { service: TestService }) =>
  eventually(async () => (await service.get("/readyz")).status === 503, "that it is away");
const claims = () => db.query("SELECT key FROM penstock WHERE key LIKE 'ct/%'", url);

test("POST /agents/:id/text in the background: a run at work and one that waits for its turn in another process both complete, though PostgreSQL was away for both", {
  skip,
}, async () => {
  model.hold("a");
  const first = await acknowledged(ask(one!, "c", "a"));
  await model.isAsked("a");
  const second = await acknowledged(ask(other!, "c", "b"));
  // The second has looked for its turn.
  await sleep(300);
  for (const { proxy } of [one!, other!]) proxy.away(true);
  await Promise.all([isAway(one!), isAway(other!)]);
  model.release("a");
  // More than two looks of the one that waits.
  await sleep(1_200);
  for (const { proxy } of [one!, other!]) proxy.away(false);
  await isOver(first);
  await isOver(second);
  const ended = [await runOf(first), await runOf(second)];
  assert.deepEqual(
    ended.map(({ status, error }) => error?.message ?? error ?? status),
    ["completed", "completed"],
  );
  const [, firstAnswer, , secondAnswer] = await said("c");
  assert.match(firstAnswer!, /^assistant: half 1 rest 1$/);
  assert.match(secondAnswer!, /^assistant: half 2 rest 2$/, "nothing was asked twice");
  assert.deepEqual(await claims(), []);
});

test("POST /agents/:id/text in the background whose first commit happened, though its answer was lost: 503, and the run that is there completes", {
  skip,
}, async () => {
  const before = new Set((await runs()).map(({ runId }) => runId));
  model.hold("once");
  one!.proxy.refuse(true);
  one!.proxy.cut("lost-start", "answered");
  const reply = await ask(one!, "lost-start", "once");
  assert.equal(reply.status, 503, await reply.text());
  one!.proxy.refuse(false);
  await eventually(async () => (await runs()).some(({ runId }) => !before.has(runId)), "the run");
  const { runId } = (await runs()).find(({ runId }) => !before.has(runId))!;
  await model.isAsked("once");
  // Rows that turns have left are removed meanwhile.
  await sleep(1_200);
  model.release("once");
  await isOver(runId);
  const { status, error } = await runOf(runId);
  assert.equal(error?.message ?? error ?? status, "completed");
  assert.equal((await said("lost-start")).length, 2);
  await eventually(async () => (await claims()).length === 0, "that no row of a turn is left");
});

test("POST /agents/:id/text in the background whose turn was taken, though the answer of that commit was lost: the run completes", {
  skip,
}, async () => {
  one!.proxy.refuse(true);
  one!.proxy.cut("ct/default/lost-turn", "answered");
  // Its name is taken before it takes the turn, in a commit of its own.
  const runId = await acknowledged(ask(one!, "lost-turn", "then", { runId: "then" }));
  await eventually(() => one!.proxy.cuts > 1, "the cut");
  await isAway(one!);
  await sleep(600);
  one!.proxy.refuse(false);
  await isOver(runId);
  const { status, error } = await runOf(runId);
  assert.equal(error?.message ?? error ?? status, "completed");
  assert.equal((await said("lost-turn")).length, 2);
  await eventually(async () => (await claims()).length === 0, "that no row of a turn is left");
});

test("POST /agents/:id/text in the background whose tool asks for approval, while PostgreSQL is away for the question and then for the yes: the run waits for both, and the tool runs once; a step of a workflow asks when it is back", {
  skip,
}, async () => {
  const clerk = (id: string): Promise<Loose> => dataOf(one!.service.get(`/agents/clerk/runs/${id}`));
  /** The next query with this text finds nobody, for a while. One that has its answer in time needs no such query. */
  const away = async (text: string, work: () => Promise<unknown>, isOver = async () => false) => {
    one!.proxy.refuse(true);
    const { cuts } = one!.proxy;
    one!.proxy.cut(text, "before");
    await work();
    await eventually(async () => one!.proxy.cuts > cuts || (await isOver()), "the cut");
    if (one!.proxy.cuts > cuts) {
      await isAway(one!);
      await sleep(300);
    }
    one!.proxy.refuse(false);
  };
  let id = "";
  await away("aq/", async () => {
    const reply = one!.service.post("/agents/clerk/text", { input: "pay 5", options: { background: true } });
    id = await acknowledged(reply);
  });
  await eventually(async () => (await clerk(id)).status === "waiting", "the question");
  const { approvals } = await clerk(id);
  assert.deepEqual(
    approvals.map(({ input }: Loose) => input),
    [{ amount: 5 }],
  );
  assert.deepEqual(ran, []);
  const answer = () => dataOf(one!.service.post(`/approvals/${approvals[0].approvalId}`, { approved: true }));
  await away("aq/", answer, async () => (await clerk(id).catch(() => null))?.endTime != null);
  await eventually(async () => (await clerk(id)).endTime != null, "the end");
  assert.deepEqual([(await clerk(id)).status, ran], ["completed", [5]]);

  // A step of a workflow as well.
  let executing: Promise<Loose> | undefined;
  await away("aq/", async () => {
    executing = dataOf(one!.service.post("/workflows/pays/execute", { input: {} }));
  });
  assert.equal((await executing).status, "suspended");
});
