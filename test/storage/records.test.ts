/** Approvals, responses, replies, tasks and runs that an earlier release wrote: `records.json` has the rows that it left in its store. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { after, beforeEach, type TestContext, test } from "node:test";
import { TaskKeeper } from "../../core/a2a/task-keeper.ts";
import { TaskRows } from "../../core/a2a/task-rows.ts";
import { HistoryMaintenance } from "../../core/agents/history/open.ts";
import { settleDue } from "../../core/approvals/approvals.ts";
import { ApprovalRows } from "../../core/approvals/rows.ts";
import { KeptReplies } from "../../core/storage/kept-replies.ts";
import { encodeNumber } from "../../core/storage/keys.ts";
import { openPostgresStore } from "../../core/storage/postgres-store.ts";
import { openSqliteStore } from "../../core/storage/sqlite-store.ts";
import type { Store } from "../../core/storage/store.ts";
import { A2aCaller, said } from "../support/a2a.ts";
import { AUTH, as, CONSOLE, ran, serveApprovals } from "../support/approvals.ts";
import { NO_POSTGRES, sharedPostgres } from "../support/postgres.ts";
import { silent } from "../support/providers.ts";
import { dataOf, errorOf, type Loose } from "../support/served-upstream.ts";
import { temporaryFolder } from "../support/storage.ts";

const { ids, rows } = JSON.parse(readFileSync("test/fixtures/stores/records.json", "utf8")) as {
  ids: Record<"open" | "approved" | "used" | "denied" | "bob" | "response" | "done" | "asks", string>;
  rows: [key: string, value: string][];
};
const CALL = { tool: "pay", input: { amount: "{{ int(match[1]) }}" } };
/** As the service had it that wrote them. */
const MANIFEST = {
  auth: AUTH,
  pay: { expires: "3650d" },
  history: { retention: "3650d" },
  providers: { demo: { use: "scripted", replies: [{ when: "^pay (\\d+)", call: CALL }] } },
  agents: { clerk: { model: "demo/echo", tools: ["pay"], memory: false } },
};
/** After everything has expired. */
const FAR = Date.parse("2100-01-01");

const server = await sharedPostgres();
after(() => server?.close());

/** An empty store, twice: open, and as a manifest names it. */
const STORES = {
  sqlite: async (t: TestContext): Promise<[Store, string]> => {
    const file = join(await temporaryFolder(t), "records.db");
    return [await openSqliteStore({ file, logger: silent }), `sqlite:${file}`];
  },
  postgres: async (): Promise<[Store, string]> => {
    const url = await server!.createDatabase();
    return [await openPostgresStore(url, { logger: silent }), url];
  },
};

beforeEach(() => void ran.splice(0));

/** Replies are kept for a day: it is given to the one of the fixture. */
function claimedNow([key, value]: [string, string]): [string, string] {
  const now = Date.now();
  if (key.startsWith("it/")) return [`it/${encodeNumber(now)}/${key.split("/")[2]}`, value];
  return key.startsWith("ik/") ? [key, JSON.stringify({ ...JSON.parse(value), at: now })] : [key, value];
}

const KEEPER = { takeUp: async () => true, hasAgents: true, retention: 0, logger: silent };

/** What is left of those spaces. */
async function left(store: Store, ...spaces: string[]): Promise<string[]> {
  const found = await Promise.all(spaces.map((prefix) => store.scan({ prefix, limit: 100 })));
  return found.flat().flatMap(({ key, value }) => (value === "0" ? [] : [key]));
}

for (const kind of ["sqlite", "postgres"] as const)
  test(`store ${kind}: approvals, responses, replies, tasks and runs that an earlier release wrote are listed, read, answered, continued and removed`, {
    skip: kind === "postgres" && server === null ? NO_POSTGRES : false,
  }, async (t) => {
    const [before, store] = await STORES[kind](t);
    const counters = rows.filter(([key]) => key.startsWith("n/"));
    await before.commit({
      put: rows.filter(([key]) => !key.startsWith("n/")).map(claimedNow),
      add: counters.map(([key, value]) => [key, Number(value)]),
    });
    await before.close();
    const service = await serveApprovals(t, { ...MANIFEST, store });
    const ada = as("ada");
    const listed = async (query: string, headers: Record<string, string> = ada) =>
      (await dataOf(service.get(`/approvals?${query}`, headers))).map(({ approvalId }: Loose) => approvalId);
    const pay = (amount: number, id: string, headers = ada) =>
      service.post("/tools/pay/execute", { input: { amount } }, { ...headers, "x-approval-id": id });

    const [asked] = await listed("status=open&agentId=clerk");
    assert.deepEqual(await listed("order=asc"), [ids.open, asked]);
    assert.deepEqual(await listed("status=open&order=asc", CONSOLE), [ids.open, ids.bob, asked]);
    assert.deepEqual(await listed("status=approved&order=asc"), [ids.approved, ids.used]);
    assert.deepEqual(await listed("status=denied"), [ids.denied]);
    await dataOf(service.post(`/approvals/${ids.open}`, { approved: true }, ada));
    assert.equal((await pay(1, ids.open)).status, 200);
    assert.equal((await pay(8, ids.approved)).status, 200);
    assert.match((await errorOf(pay(4, ids.used))).error, /has been used/);
    assert.match((await errorOf(pay(6, ids.denied))).error, /was refused: too much/);
    assert.deepEqual(await listed("status=open"), [asked]);

    const response = await (await service.get(`/v1/responses/${ids.response}`, ada)).json();
    assert.equal((response as Loose).output[0].content[0].text, "hello");
    const repeated = await service.post(
      "/agents/clerk/text",
      { input: "hello" },
      { ...as("bob"), "idempotency-key": "k" },
    );
    assert.equal(repeated.headers.get("idempotency-replayed"), "true");

    const peer = new A2aCaller(service, ada);
    const tasks = async () => (await peer.result("clerk", "ListTasks", {})).tasks.map(({ id }: Loose) => id);
    assert.deepEqual(await tasks(), [ids.asks, ids.done]);
    const { status } = await peer.send("clerk", said("yes", { taskId: ids.asks }));
    assert.equal(status.state, "TASK_STATE_COMPLETED");
    assert.deepEqual(ran, [1, 8, 9]);
    assert.deepEqual(await listed("status=open"), []);
    const history = await dataOf(service.get("/agents/clerk/history?limit=100", CONSOLE));
    assert.ok(history.total > 5 && history.entries.length === history.total);

    const { store: open, responses } = service.service;
    const { signal } = new AbortController();
    const kept = new ApprovalRows(open, () => 0);
    while ((await settleDue(kept, () => FAR)) > 0);
    assert.deepEqual(await left(open, "ap/", "aq/", "as/", "aa/", "au/", "av/", "ax/", "aw/", "ar/"), []);
    await responses.rows.removeBefore(FAR, signal);
    await new KeptReplies(open, null, silent).rows.removeBefore(FAR, signal);
    assert.deepEqual(await left(open, "rs/", "rt/", "ik/", "it/"), []);
    await new TaskKeeper(new TaskRows(open, true), KEEPER).forget(FAR);
    assert.deepEqual(await left(open, "a2/", "a2i/", "a2u/", "a2m/", "a2o/", "a2p/"), []);
    await new HistoryMaintenance(open, { retention: 0, logger: silent }).deleteRunsBefore(FAR);
    assert.deepEqual(await left(open, "h/", "hu/", "ho/", "n/h/", "n/hu/"), []);
  });
