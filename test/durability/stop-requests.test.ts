/** What one process asks of another: requests of several clients, and of several runs of one execution, do not get in each other's way. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { executionKey, OPEN_EXECUTIONS, stopRequestKey } from "../../core/storage/keys.ts";
import { createMemoryStore } from "../../core/storage/memory-store.ts";
import { StopRequests, stopRemoteExecution } from "../../core/workflows/cluster/requests.ts";
import { readExecution } from "../../core/workflows/journal/load.ts";
import { until } from "../support/probe.ts";
import { soon } from "../support/providers.ts";
import { CALL, processesOf } from "../support/workflow-process.ts";

const MANIFEST = {
  workflows: {
    w: {
      steps: [
        { id: "ask", andThen: { suspend: { reason: "Yes?" } } },
        { id: "work", andThen: { use: "never" } },
      ],
    },
  },
};
const PLUGINS = { "steps/never.mjs": `export default { kind: "step", execute: () => new Promise(() => {}) };` };
const TIMES = { heartbeatInterval: 60_000, leaseTimeout: 600_000, stopRequestInterval: 60_000 };

test("who asked about a run that is over leaves the request of another about the next run alone", async (t) => {
  const store = createMemoryStore();
  const start = await processesOf(t, MANIFEST, { plugins: PLUGINS });
  const one = await start({ ...store, kind: "shared" }, { processTimes: TIMES });
  t.after(() => one.opened.close());
  const { executionId } = JSON.parse((await one.access.execute("w", { input: {} }, CALL)).json);
  one.access.resume("w", executionId, {}, CALL).catch(() => {});
  await until(async () => (await store.scan({ prefix: OPEN_EXECUTIONS, limit: 1 })).length === 1, "the resume");
  const number = 1;
  const found = (await readExecution(store, number))!;
  const open = found.openRow!;

  // It rests, and is resumed, while the first one waits for an answer; another has asked for a cancel of the new run by then.
  let asked: () => void = () => {};
  const hasAsked = new Promise<void>((resolve) => {
    asked = resolve;
  });
  const slow = {
    ...store,
    async commit(commit: Parameters<typeof store.commit>[0]) {
      const revision = await store.commit(commit);
      if (commit.put?.[0]?.[0] === stopRequestKey(number)) asked();
      return revision;
    },
  };
  const stopping = stopRemoteExecution(slow, found, { kind: "suspend", reason: "first" });
  await soon(hasAsked, "the request");
  const resumed = await store.commit({
    put: [
      [open.key, open.value],
      [executionKey(number), found.recordRow!.value],
    ],
  });
  await store.commit({ put: [[stopRequestKey(number), JSON.stringify(["cancel", "second", resumed])]] });
  assert.equal((await soon(stopping, "the answer")).status, "running");
  assert.deepEqual(JSON.parse((await store.get(stopRequestKey(number)))!.value), ["cancel", "second", resumed]);
});

test("a start removes requests about runs that are over, but not one that takes the place of such a request", async (t) => {
  const store = createMemoryStore();
  const start = await processesOf(t, MANIFEST, { plugins: PLUGINS });
  const { opened } = await start({ ...store, kind: "shared" }, { processTimes: TIMES });
  t.after(() => opened.close());
  const stale = JSON.stringify(["cancel", "old", 1]);
  await store.commit({ put: [7, 8].map((number): [string, string] => [stopRequestKey(number), stale]) });
  const view = {
    ...store,
    async getMany(keys: readonly string[]) {
      const rows = await store.getMany(keys);
      await store.commit({ put: [[stopRequestKey(8), JSON.stringify(["cancel", "new", 99])]] });
      return rows;
    },
  };
  const orders = new StopRequests(Object.assign(Object.create(opened.engine), { store: view }), 60_000);
  t.after(() => orders.close());
  await orders.start();
  assert.equal(await store.get(stopRequestKey(7)), undefined);
  assert.deepEqual(JSON.parse((await store.get(stopRequestKey(8)))!.value), ["cancel", "new", 99]);
});
