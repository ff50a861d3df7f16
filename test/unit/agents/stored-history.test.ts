/** The history in a store, as `GET /agents/:id/history` reads it. */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { HistoryRun } from "../../../core/agents/history/history.ts";
import { HistoryMaintenance, StoredHistories } from "../../../core/agents/history/open.ts";
import { DEFAULT_SETTINGS } from "../../../core/agents/run/options.ts";
import { emptyRunResult } from "../../../core/agents/run/run.ts";
import { ServiceError, unavailable } from "../../../core/lib/errors.ts";
import { Serialized } from "../../../core/lib/serialized.ts";
import { Membership } from "../../../core/storage/membership.ts";
import { createMemoryStore } from "../../../core/storage/memory-store.ts";
import type { Store } from "../../../core/storage/store.ts";
import { silent } from "../../support/agents.ts";
import { until } from "../../support/probe.ts";

const { memory } = DEFAULT_SETTINGS;
const DAY = 86_400_000;
const outcome = (text: string) => ({ ...emptyRunResult(), text });

function historiesOver(store: Store, isolated = false, membership: Membership | null = null) {
  const histories = new StoredHistories(store, { retention: 30 * DAY, logger: silent, isolated, membership });
  const page = async (agent: string, number = 0, limit = 10, owner?: string) => {
    const answer = await histories.forAgent(agent).page(number, limit, owner);
    assert.ok(answer instanceof Serialized);
    return JSON.parse(answer.json);
  };
  return { histories, page };
}

/** A store that says what a process on another machine would find. */
const shared = (store: Store): Store => ({ ...store, kind: "postgres" });

test("StoredHistories has the same runs after a restart, newest first, in pages", async () => {
  const store = createMemoryStore();
  const first = historiesOver(store);
  for (let index = 0; index < 1200; index++) {
    const id = String(index).padStart(8, "0");
    first.histories
      .forAgent("a")
      .end(first.histories.forAgent("a").begin(id, index, memory), "completed", emptyRunResult());
  }
  await first.histories.close();
  const second = historiesOver(store);
  await second.histories.start();
  const { entries, total } = await second.page("a", 1, 100);
  assert.equal(total, 1200);
  assert.deepEqual(
    entries.map((entry: { input: number }) => entry.input),
    Array.from({ length: 100 }, (_, index) => 1099 - index),
  );
  assert.deepEqual((await second.page("a", 12, 100)).entries, []);
  await assert.rejects(
    async () => second.histories.forAgent("a").page(1_000_000, 100),
    (error: ServiceError) => error.kind === "invalid_input",
  );
  await second.histories.close();
});

test("StoredHistories says of a run that a dead process left open that it was interrupted", async () => {
  const store = createMemoryStore();
  const dead = historiesOver(store);
  dead.histories.forAgent("a").begin("lost", "x", memory);
  await dead.page("a");
  const next = historiesOver(store);
  await next.histories.start();
  const [entry] = (await next.page("a")).entries;
  assert.equal(entry.status, "error");
  assert.equal(entry.error, "interrupted");
  assert.ok(entry.endTime);
  assert.equal((await next.page("a")).total, 1);
  assert.deepEqual(await store.scan({ prefix: "ho/", limit: 10 }), []);
  await next.histories.close();
});

test("StoredHistories leaves the runs of another living process alone", async () => {
  const store = shared(createMemoryStore());
  const other = historiesOver(store);
  const run = other.histories.forAgent("a").begin("alive", "x", memory);
  await other.page("a");
  const next = historiesOver(store);
  await next.histories.start();
  assert.equal((await next.page("a")).entries[0].status, "running");
  const keeper = new HistoryMaintenance(store, { retention: DAY, logger: silent });
  await keeper.orphans.look(() => true);
  assert.equal((await next.page("a")).entries[0].error, "interrupted");
  // The other one was slow, not dead: what it says at the end counts.
  other.histories.forAgent("a").end(run, "completed", outcome("late"));
  await other.histories.close();
  assert.equal((await next.page("a")).entries[0].output, "late");
  assert.equal((await next.page("a")).total, 1);
  await next.histories.close();
});

test("StoredHistories says interrupted of runs whose process is gone, and of no others, whatever their clocks say", async (t) => {
  const store = shared(createMemoryStore());
  const start = async () => {
    const membership = new Membership(store, {
      logger: silent,
      times: { heartbeatInterval: 20, leaseTimeout: 60_000 },
    });
    await membership.start();
    t.after(() => membership.release());
    return { membership, ...historiesOver(store, false, membership) };
  };
  const [slow, gone, next] = [await start(), await start(), await start()];
  const run = slow.histories.forAgent("a").begin("slow", "x", memory);
  gone.histories.forAgent("a").begin("gone", "x", memory);
  for (const { page } of [slow, gone]) await page("a");
  const lease = (await store.get("ho/slow"))!;
  const hourAgo = { ...JSON.parse(lease.value), seen: Date.now() - 3_600_000 };
  await store.commit({ put: [["ho/slow", JSON.stringify(hourAgo)]] });
  await next.histories.start();
  const statuses = async () => {
    const { entries } = await next.page("a");
    return new Map(entries.map(({ id, status }: { id: string; status: string }) => [id, status]));
  };
  assert.deepEqual(
    await statuses(),
    new Map([
      ["slow", "running"],
      ["gone", "running"],
    ]),
  );
  await gone.membership.release();
  await until(async () => (await statuses()).get("gone") === "error", "the end of the run");
  assert.equal((await statuses()).get("slow"), "running");
  slow.histories.forAgent("a").end(run, "completed", outcome("late"));
  await slow.histories.close();
  assert.equal((await statuses()).get("slow"), "completed");
  for (const { histories } of [gone, next]) await histories.close();
});

test("StoredHistories.close waits for what was begun because a process is gone, and reads no further", async (t) => {
  const base = shared(createMemoryStore());
  let reads = 0;
  let answer = () => {};
  let slow: Promise<void> | null = null;
  const store: Store = {
    ...base,
    async scan(range) {
      if (range.prefix === "ho/") {
        reads++;
        await slow;
      }
      return base.scan(range);
    },
  };
  const member = async () => {
    const times = { heartbeatInterval: 20, leaseTimeout: 60_000 };
    const membership = new Membership(base, { logger: silent, times });
    await membership.start();
    t.after(() => membership.release());
    return membership;
  };
  const [gone, next] = [await member(), await member()];
  const dead = historiesOver(base, false, gone);
  dead.histories.forAgent("a").begin("gone", "x", memory);
  await dead.page("a");
  const { histories } = historiesOver(store, false, next);
  await histories.start();
  slow = new Promise((resolve) => (answer = resolve));
  const before = reads;
  await gone.release();
  await until(() => reads > before, "the look");
  let isClosed = false;
  const closing = histories.close().then(() => (isClosed = true));
  await new Promise((resolve) => setTimeout(resolve, 50));
  assert.equal(isClosed, false);
  answer();
  await closing;
  assert.equal((await base.scan({ prefix: "ho/", limit: 9 })).length, 1, "it is left to others");
  await dead.histories.close();
});

test("StoredHistories: a run has its row soon after it began, also while another one goes on for long", async () => {
  const store = shared(createMemoryStore());
  const { histories } = historiesOver(store);
  const history = histories.forAgent("a");
  history.begin("long", "x", memory);
  const leases = async () => store.scan({ prefix: "ho/", limit: 10 });
  await until(async () => (await leases()).length === 1, "the row of the first run");
  // Its first heartbeat comes with the next flush, the second one ten seconds later.
  const second = history.begin("second", "x", memory);
  await until(async () => (await leases()).length === 2, "the row of the second run");
  const [long] = await leases();
  const third = history.begin("third", "x", memory);
  await until(async () => (await leases()).length === 3, "the row of the third run");
  assert.deepEqual((await leases())[0], long, "it did not wait for the next heartbeat");
  for (const run of [second, third]) history.end(run, "completed", emptyRunResult());
  await histories.close();
});

test("history.retention forgets what is older, of every agent that has runs in the store, and counts what is left", async () => {
  const store = createMemoryStore();
  const { histories, page } = historiesOver(store);
  const begin = (agent: string, id: string, daysAgo: number) => {
    const run = histories.forAgent(agent).begin(id, "x", memory);
    Object.assign(run, { startTime: Date.now() - daysAgo * DAY });
    histories.forAgent(agent).end(run, "completed", emptyRunResult());
  };
  for (let index = 0; index < 250; index++) begin("a", `old-${index}`, 31);
  for (let index = 0; index < 3; index++) begin("a", `new-${index}`, 29);
  begin("b", "old", 40);
  assert.equal((await page("a")).total, 253);
  await page("b");
  const keeper = new HistoryMaintenance(store, { retention: 30 * DAY, logger: silent });
  await Promise.all([keeper.deleteRunsBefore(Date.now() - 30 * DAY), keeper.deleteRunsBefore(Date.now() - 30 * DAY)]);
  const left = await page("a");
  assert.equal(left.total, 3);
  assert.deepEqual(
    left.entries.map((entry: { id: string }) => entry.id.slice(0, 3)),
    ["new", "new", "new"],
  );
  assert.equal((await page("b")).total, 0);
  await histories.close();
});

test("StoredHistories: the history of one user has its runs alone, in pages, and forgets them with the others", async () => {
  const store = createMemoryStore();
  const { histories, page } = historiesOver(store, true);
  const idsOf = ({ entries }: { entries: { id: string }[] }) => entries.map(({ id }) => id);
  for (let index = 0; index < 30; index++) {
    const userId = ["ada", "bob", undefined][index % 3];
    const run = histories.forAgent("a").begin(`run-${index}`, "x", { ...memory, userId });
    Object.assign(run, { startTime: Date.now() - (index < 15 ? 40 * DAY : 1000) + index });
    // Some are written before they end.
    if (index % 6 === 0) await page("a");
    histories.forAgent("a").end(run, "completed", emptyRunResult());
  }
  const hers = await page("a", 0, 4, "ada");
  assert.deepEqual([hers.total, idsOf(hers)], [10, ["run-27", "run-24", "run-21", "run-18"]]);
  assert.deepEqual(idsOf(await page("a", 2, 4, "ada")), ["run-3", "run-0"]);
  assert.deepEqual([(await page("a", 0, 10, "bob")).total, (await page("a", 0, 10, "")).total], [10, 10]);
  assert.deepEqual(await page("b", 0, 10, "ada"), { entries: [], total: 0, page: 0, limit: 10 });
  assert.equal((await page("a", 0, 10, "ad")).total, 0);
  const keeper = new HistoryMaintenance(store, { retention: 30 * DAY, logger: silent });
  await Promise.all([keeper.deleteRunsBefore(Date.now() - 30 * DAY), keeper.deleteRunsBefore(Date.now() - 30 * DAY)]);
  const left = await page("a", 0, 10, "ada");
  assert.deepEqual([left.total, idsOf(left)], [5, ["run-27", "run-24", "run-21", "run-18", "run-15"]]);
  assert.equal((await store.scan({ prefix: "hu/", limit: 100 })).length, 15);
  assert.equal((await page("a")).total, 15);
  await histories.close();
});

test("StoredHistories loses nothing while the store fails for a while", async () => {
  const store = createMemoryStore();
  let broken = true;
  const failing: Store = {
    ...store,
    commit: (commit) => (broken ? Promise.reject(unavailable("the disk is full")) : store.commit(commit)),
  };
  const { histories, page } = historiesOver(failing);
  const history = histories.forAgent("a");
  const runs: HistoryRun[] = [];
  for (let index = 0; index < 20; index++) runs.push(history.begin(`run-${index}`, "x", memory));
  for (const run of runs.slice(0, 10)) history.end(run, "completed", emptyRunResult());
  assert.equal((await page("a")).total, 0);
  broken = false;
  assert.equal((await page("a", 0, 100)).total, 20);
  for (const run of runs.slice(10))
    history.end(run, "error", emptyRunResult(), new ServiceError("provider_failed", "no"));
  const all = await page("a", 0, 100);
  assert.equal(all.total, 20);
  assert.equal(all.entries.filter((entry: { status: string }) => entry.status === "error").length, 10);
  await histories.close();
});

test("history.retention forgets the runs of agents that the manifest no longer names, and their users' totals", async () => {
  const store = createMemoryStore();
  const { histories, page } = historiesOver(store, true);
  for (const agent of ["gone", "kept", "zoo"])
    for (const [id, daysAgo] of [
      ["old", 31],
      ["new", 1],
    ] as const) {
      const run = histories.forAgent(agent).begin(`${agent}-${id}`, "x", { ...memory, userId: "ada" });
      Object.assign(run, { startTime: Date.now() - daysAgo * DAY });
      histories.forAgent(agent).end(run, "completed", emptyRunResult());
    }
  await page("kept");
  const keeper = new HistoryMaintenance(store, { retention: 30 * DAY, logger: silent });
  await keeper.deleteRunsBefore(Date.now() - 30 * DAY);
  const keys = (await store.scan({ prefix: "h", limit: 100 })).map(({ key }) => key.split("/").at(-1));
  assert.deepEqual(keys.sort(), ["gone-new", "gone-new", "kept-new", "kept-new", "zoo-new", "zoo-new"]);
  for (const agent of ["gone", "kept", "zoo"]) assert.equal((await page(agent, 0, 10, "ada")).total, 1);
  await histories.close();
});
