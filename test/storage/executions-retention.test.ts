/** What becomes of executions that are over for long, on every engine, out of rows made here. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { ServiceError } from "../../core/lib/errors.ts";
import { EXECUTION_SEQUENCE, EXECUTIONS } from "../../core/storage/keys.ts";
import { createMemoryStore } from "../../core/storage/memory-store.ts";
import type { Store } from "../../core/storage/store.ts";
import type { ExecutionStatus } from "../../core/workflows/journal/entries.ts";
import { runDefinitionId } from "../../core/workflows/journal/record.ts";
import { ExecutionRetention } from "../../core/workflows/retention.ts";
import { ENGINES, openRows, putExecutions, restRows, type Sample } from "../support/executions.ts";
import { until } from "../support/probe.ts";
import { silent } from "../support/providers.ts";
import { recordingLogger } from "../support/storage.ts";
import { CALL, processesOf } from "../support/workflow-process.ts";

const NOW = Date.parse("2026-11-20T08:00:00Z");
const DAY = 86_400_000;
const STATUSES: readonly ExecutionStatus[] = ["completed", "error", "cancelled", "suspended", "running"];

const retention = (store: Store, workflows: Record<string, number> = {}, otherWorkflows = 30 * DAY) =>
  new ExecutionRetention(store, { workflows: new Map(Object.entries(workflows)), otherWorkflows, logger: silent });

/** Every key of executions there is. */
async function keysOf(store: Store): Promise<string[]> {
  const keys: string[] = [];
  for (const prefix of ["x/", "xo/", "xn/", "xs/", "xw/", "xu/", "xv/"]) {
    for (const { key } of await store.scan({ prefix, limit: 100_000 })) keys.push(key);
  }
  return keys.sort();
}

const keysFor = (samples: readonly Sample[]): string[] =>
  samples
    .flatMap((sample) => (sample.status === "running" ? openRows(sample) : restRows(sample)))
    .map(([key]) => key)
    .sort();

for (const engine of ENGINES) {
  describe(`workflows.NAME.retention on ${engine.name}`, () => {
    test("each workflow keeps its executions as long as it says, and one that is gone as long as the default", async (t) => {
      const store = await engine.open(t);
      const names = ["short", "long", "long/er", "gone", "gon", `${"x".repeat(250)}`];
      const kept: Record<string, number> = { short: DAY, long: 10 * DAY, "long/er": 3 * DAY };
      const samples = Array.from(
        { length: 240 },
        (_, index): Sample => ({
          number: index + 1,
          status: STATUSES[index % 5]!,
          at: NOW - index * (DAY / 8),
          workflowId: names[index % 6]!,
          ...(index % 4 === 0 && { userId: `user/${index % 7}` }),
          ...(index % 9 === 0 && { id: `mine-${index}` }),
          ...(index % 6 === 1 && { metadata: { userId: "of nobody" } }),
        }),
      );
      await putExecutions(store, samples);
      await retention(store, kept, 5 * DAY).removeExpired(NOW);
      const left = samples.filter(({ status, at, workflowId }) => {
        const over = status === "completed" || status === "error" || status === "cancelled";
        return !over || at + 1000 >= NOW - (kept[workflowId!] ?? 5 * DAY);
      });
      assert.ok(left.length > 100 && left.length < 200, `${left.length}`);
      assert.deepEqual(await keysOf(store), keysFor(left));
    });

    test("what counts is when an execution ended, not when it began", async (t) => {
      const store = await engine.open(t);
      const samples: Sample[] = [
        { number: 1, status: "completed", at: NOW - 90 * DAY, rested: NOW - DAY },
        { number: 2, status: "completed", at: NOW - 90 * DAY, rested: NOW - 31 * DAY },
        { number: 3, status: "error", at: NOW - 31 * DAY, rested: NOW - 30 * DAY },
        { number: 4, status: "error", at: NOW - 31 * DAY, rested: NOW - 30 * DAY - 1 },
      ];
      await putExecutions(store, samples);
      await retention(store).removeExpired(NOW);
      assert.deepEqual(await keysOf(store), keysFor([samples[0]!, samples[2]!]));
    });

    test("two processes that look through the same executions at once remove each of them once", async (t) => {
      const store = await engine.open(t);
      const samples = Array.from(
        { length: 260 },
        (_, index): Sample => ({ number: index + 1, status: "completed", at: index, userId: "ada" }),
      );
      await putExecutions(store, [...samples, { number: 999, status: "completed", at: NOW }]);
      await Promise.all([retention(store).removeExpired(NOW), retention(store).removeExpired(NOW)]);
      // Where both wanted the same ones in one commit, neither may have got all of them: the next round does.
      await retention(store).removeExpired(NOW);
      assert.deepEqual(await keysOf(store), keysFor([{ number: 999, status: "completed", at: NOW }]));
    });

    test("maxEnded: the oldest that have ended go until so many are left, of all statuses together", async (t) => {
      const store = await engine.open(t);
      const samples = Array.from(
        { length: 300 },
        (_, index): Sample => ({
          number: index + 1,
          status: STATUSES[index % 7 === 0 ? 3 : index % 11 === 0 ? 4 : index % 3]!,
          at: NOW + index,
          workflowId: `w${index % 2}`,
        }),
      );
      await putExecutions(store, samples);
      const over = samples.filter(({ status }) => status !== "suspended" && status !== "running");
      const keeper = retention(store);
      await keeper.removeOldest(over.length);
      assert.deepEqual(await keysOf(store), keysFor(samples));
      await keeper.removeOldest(60);
      const gone = new Set(over.slice(0, -60));
      assert.deepEqual(await keysOf(store), keysFor(samples.filter((sample) => !gone.has(sample))));
    });

    test("an index row that leads nowhere goes with the others", async (t) => {
      const store = await engine.open(t);
      const sample: Sample = { number: 5, status: "completed", at: 5 };
      await putExecutions(store, [sample]);
      await store.commit({ clear: ["x/"] });
      await retention(store).removeExpired(NOW);
      assert.deepEqual(
        (await keysOf(store)).filter((key) => key.startsWith("xw/")),
        [],
      );
    });
  });
}

test("retention of executions: a store in memory is kept down while executions come, and closing waits for what is under way", async () => {
  const store = createMemoryStore();
  const keeper = new ExecutionRetention(store, {
    workflows: new Map(),
    otherWorkflows: DAY,
    logger: silent,
    maxEnded: 1_000,
  });
  keeper.start();
  const many = Array.from(
    { length: 5_000 },
    (_, index): Sample => ({ number: index + 1, status: "completed", at: Date.now() + index }),
  );
  await putExecutions(store, many);
  await store.commit({ put: [[EXECUTION_SEQUENCE, "8193"]] });
  const ended = async () => (await store.scan({ prefix: "xs/", limit: 10_000 })).length;
  for (let tries = 0; tries < 6_000 && (await ended()) > 1_000; tries++) await sleep(50);
  assert.equal(await ended(), 1_000);
  await keeper.close();
  assert.deepEqual(await keysOf(store), keysFor(many.slice(-1_000)));
});

test("POST /workflows/:id/execute with memory: the executions that are kept take 48 MiB at most, and the newest are kept", async (t) => {
  const start = await processesOf(t, { workflows: { w: { steps: [{ id: "s", andThen: { set: { n: 1 } } }] } } });
  const store = createMemoryStore();
  const { access, opened } = await start(store);
  t.after(() => opened.close());
  const most = 48 * 1024 * 1024;
  const held = () => store.held!(EXECUTIONS);
  let highest = 0;
  const text = "x".repeat(900_000);
  for (let index = 0; index < 100; index++) {
    await access.execute("w", { input: { text }, options: { executionId: `e${index}` } }, CALL);
    highest = Math.max(highest, held());
  }
  await until(() => held() <= most, "room");
  assert.ok(highest > most / 2 && held() > most / 2, `${highest} bytes, ${held()} at the end`);
  assert.equal((await access.state("w", "e99")).status, "completed");
  await assert.rejects(access.state("w", "e0"), /e0/);
});

test("retention of executions: they fit into memory: as long as they end, also when others come while the oldest are removed", async (t) => {
  const inner = createMemoryStore();
  let number = 0;
  const end = (count: number) =>
    putExecutions(
      inner,
      Array.from({ length: count }, (): Sample => ({ number: ++number, status: "completed", at: NOW + number })),
    );
  let arrivals = 5;
  const store: Store = {
    ...inner,
    // Each as if it were large.
    held: (space) => inner.held!(space) * 1_000,
    async commit(commit) {
      const revision = await inner.commit(commit);
      if (arrivals-- > 0) await end(500);
      return revision;
    },
  };
  await end(500);
  const told: boolean[] = [];
  const periods = { workflows: new Map(), otherWorkflows: DAY };
  const keeper = new ExecutionRetention(store, {
    ...periods,
    logger: silent,
    maxEnded: 100_000,
    fits: (fit) => told.push(fit),
  });
  t.after(() => keeper.close());
  keeper.start();
  await until(() => told.length > 0, "a look");
  assert.equal(told[0], true);
  assert.ok(store.held!(EXECUTIONS) <= 42 * 1024 * 1024, `${store.held!(EXECUTIONS)} bytes after one look`);
});

test("POST /workflows/:id/execute with memory: is refused while executions that wait take all the room, until one of them goes on", async (t) => {
  const steps = [
    { id: "ask", andThen: { suspend: { reason: "Is it right?" } } },
    { id: "last", andThen: { set: { n: 1 } } },
  ];
  const { access, opened } = await (await processesOf(t, { workflows: { w: { steps } } }))(createMemoryStore());
  t.after(() => opened.close());
  const text = "x".repeat(900_000);
  const ids: string[] = [];
  const execute = async () => {
    const id = `e${ids.length}`;
    await access.execute("w", { input: { text }, options: { executionId: id } }, CALL);
    ids.push(id);
  };
  const refused = async () => {
    try {
      await execute();
      return false;
    } catch (error) {
      assert.match((error as Error).message, /executions in memory: take all their room/);
      return true;
    }
  };
  // Looks are at intervals, between which as many as come are begun.
  for (let count = 0; count < 60; count++) await refused();
  await until(refused, "a refusal");
  assert.ok(ids.length > 20, `${ids.length} wait`);
  for (const id of ids) assert.equal((await access.state("w", id)).status, "suspended", "none is removed");
  for (const id of ids) await access.resume("w", id, {}, CALL);
  await until(async () => !(await refused()), "room");
});

test("retention of executions: removeBytes removes as many of the oldest that have ended as are too large together, runs of agents among them, and no other", async () => {
  const store = createMemoryStore();
  const samples = Array.from(
    { length: 900 },
    (_, index): Sample => ({
      number: index + 1,
      status: STATUSES[index % 4]!,
      at: NOW + index,
      ...(index % 4 === 0 && { workflowId: runDefinitionId("assistant") }),
    }),
  );
  await putExecutions(store, samples);
  const whole = store.held!(EXECUTIONS);
  const keeper = retention(store);
  await keeper.removeBytes(whole);
  assert.deepEqual(await keysOf(store), keysFor(samples));
  await keeper.removeBytes(whole / 2);
  const left = (await keysOf(store)).filter((key) => /^x\/.*\/r$/.test(key)).length;
  assert.ok(left > 300 && left <= 450, `${left} are left`);
  const over = samples.filter(({ status }) => status !== "suspended");
  const gone = new Set(over.slice(0, samples.length - left));
  assert.deepEqual(await keysOf(store), keysFor(samples.filter((sample) => !gone.has(sample))));
  await keeper.removeBytes(0);
  assert.deepEqual(await keysOf(store), keysFor(samples.filter(({ status }) => status === "suspended")));
});

test("retention of executions: a store that cannot be used is said once, and again only after it could be", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const store = createMemoryStore();
  let broken = true;
  const failing: Store = {
    ...store,
    scan: async (range) => {
      if (broken) throw new ServiceError("unavailable", "storage is unavailable: no disk");
      return store.scan(range);
    },
  };
  const { logger, lines } = recordingLogger();
  const keeper = new ExecutionRetention(failing, { workflows: new Map(), otherWorkflows: DAY, logger });
  keeper.start();
  const round = async (milliseconds: number) => {
    t.mock.timers.tick(milliseconds);
    for (let turn = 0; turn < 20; turn++) await new Promise(setImmediate);
  };
  await round(5_000);
  await round(60_000);
  const line = "warn: ended executions cannot be removed: storage is unavailable: no disk";
  assert.deepEqual(lines, [line]);
  broken = false;
  await round(60_000);
  broken = true;
  await round(60_000);
  assert.deepEqual(lines, [line, line]);
  await keeper.close();
});
