/** Rows of tasks: what is written, how long they are kept, and how much room they take in memory. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { newRecord } from "../../../core/a2a/new-task.ts";
import { ended, resumed, type TaskRecord } from "../../../core/a2a/task.ts";
import { newTaskId } from "../../../core/a2a/task-ids.ts";
import { removeSurplusTasks, TaskKeeper } from "../../../core/a2a/task-keeper.ts";
import { TaskRows } from "../../../core/a2a/task-rows.ts";
import { NOBODY } from "../../../core/identity/principal.ts";
import { encodeNumber } from "../../../core/storage/keys.ts";
import type { Membership } from "../../../core/storage/membership.ts";
import { createMemoryStore } from "../../../core/storage/memory-store.ts";
import { recordingLogger } from "../../support/storage.ts";

const ADA = { userId: "ada", isolated: true };

const keeperOf = (rows: TaskRows) =>
  new TaskKeeper(rows, { takeUp: async () => true, hasAgents: true, retention: 60_000, ...recordingLogger() });

function recordOf(agent: string): TaskRecord {
  const message = { messageId: newTaskId(Date.now()), role: "ROLE_USER" as const, parts: [{ text: "x" }] };
  return newRecord(agent, { message, contextId: "c", context: undefined }, ADA, { user: null, caller: NOBODY });
}

async function endedTask(rows: TaskRows, agent: string): Promise<TaskRecord> {
  const record = recordOf(agent);
  const after = ended(record, { state: "TASK_STATE_COMPLETED" });
  await rows.change(record, after, await rows.create(record));
  return after;
}

test("A2A tasks that are too old are forgotten with their rows; those that work, and young ones, stay", async () => {
  const store = createMemoryStore();
  const rows = new TaskRows(store, true);
  const working = recordOf("slow");
  await rows.create(working);
  const old = await endedTask(rows, "nap");
  const isThere = async ({ agent, task }: TaskRecord) => (await rows.read(agent, task.id)) !== undefined;
  await keeperOf(rows).forget(Date.now() - 10_000);
  assert.deepEqual([await isThere(old), await isThere(working)], [true, true]);
  await keeperOf(rows).forget(Date.now() + 10_000);
  assert.deepEqual([await isThere(old), await isThere(working)], [false, true]);
  const left = await Promise.all(
    ["a2/", "a2i/", "a2u/", "a2o/", "a2m/"].map((prefix) => store.scan({ prefix, limit: 9 })),
  );
  assert.deepEqual(
    left.map((found) => found.length),
    [1, 1, 1, 1, 1],
  );
});

test("A2A tasks of agents that are no more, and of users from before, are forgotten too", async () => {
  const store = createMemoryStore();
  const rows = new TaskRows(store, true);
  for (const agent of ["nap", "gone", "gone-2", "gone2", "na"]) await endedTask(rows, agent);
  await keeperOf(new TaskRows(store, false)).forget(Date.now() + 10_000);
  const left = await Promise.all(["a2/", "a2i/", "a2u/"].map((prefix) => store.scan({ prefix, limit: 9 })));
  assert.deepEqual(
    left.map((found) => found.length),
    [0, 0, 0],
  );
});

test("A2A tasks in memory: take 16 MiB together: the oldest that are over are removed, and none that still works", async () => {
  const store = createMemoryStore();
  const rows = new TaskRows(store, true);
  const working = recordOf("slow");
  await rows.create(working);
  const { message: _, ...record } = ended(recordOf("nap"), { state: "TASK_STATE_COMPLETED" });
  const answer = { parts: [{ text: "x".repeat(100_000) }] };
  const added = Array.from({ length: 300 }, (_, index) => ({
    ...record,
    agent: index % 2 === 0 ? "nap" : "gone",
    updatedAt: record.updatedAt + 1 + index,
    task: { ...record.task, id: newTaskId(Date.now()), artifacts: [{ artifactId: "a", ...answer }] },
  }));
  for (const more of added) await rows.create(more);
  const before = store.held?.("a2/") ?? 0;
  assert.ok(before > 28e6, `${before}`);
  await removeSurplusTasks(rows, new AbortController().signal);
  const held = store.held?.("a2/") ?? 0;
  assert.ok(held > 15 * 1024 * 1024 && held <= 16 * 1024 * 1024, `${held}`);
  const left = await Promise.all(added.map(async ({ agent, task }) => (await rows.read(agent, task.id)) !== undefined));
  assert.ok(!left.slice(0, left.indexOf(true)).includes(true) && !left.slice(left.indexOf(true)).includes(false));
  assert.equal(left.indexOf(true) > 100, true);
  assert.equal((await rows.read("slow", working.task.id))?.record.task.status.state, "TASK_STATE_WORKING");
});

test("rows of an A2A task are as earlier releases have written them, in each of its states", async () => {
  const store = createMemoryStore();
  const process = (name: string) => new TaskRows(store, true, { name } as Membership);
  const record = recordOf("nap");
  const { task, message } = record;
  const [messageKey, digest] = message!;
  const rowsOf = (value: { updatedAt: number }, state: string, more: Record<string, unknown>) => {
    const facts = [state, "c", "ada", messageKey];
    const lists = ["a2i/nap", "a2u/nap/ada"].map((list) => [
      `${list}/${encodeNumber(value.updatedAt)}/${task.id}`,
      facts,
    ]);
    return { [`a2/nap/${task.id}`]: value, ...Object.fromEntries(lists), [messageKey]: [task.id, digest], ...more };
  };
  const written = async () => {
    const rows = await store.scan({ prefix: "a2", limit: 20 });
    return Object.fromEntries(rows.map(({ key, value }) => [key, value === "" ? "" : JSON.parse(value)]));
  };
  const open = { [`a2p/ada/${task.id}`]: "" };
  const lease = (process: string) => ({ ...open, [`a2o/${task.id}`]: { agent: "nap", process } });
  let revision = await process("p").create(record);
  assert.deepEqual(await written(), rowsOf(record, "TASK_STATE_WORKING", lease("p")));
  const approvals = [{ approvalId: "1", toolName: "t", input: {} }] as never;
  const asking = ended(
    { ...record, updatedAt: record.updatedAt + 5_000 },
    { state: "TASK_STATE_INPUT_REQUIRED", approvals },
  );
  revision = await process("p").change(record, asking, revision);
  assert.deepEqual(await written(), rowsOf(asking, "TASK_STATE_INPUT_REQUIRED", open));
  const again = resumed(asking);
  revision = await process("q").change(asking, again, revision);
  assert.deepEqual(await written(), rowsOf(again, "TASK_STATE_WORKING", lease("q")));
  revision = await process("r").change(again, again, revision);
  assert.deepEqual(await written(), rowsOf(again, "TASK_STATE_WORKING", lease("r")));
  const over = ended(again, { state: "TASK_STATE_COMPLETED" });
  await process("r").change(again, over, revision);
  assert.deepEqual(await written(), rowsOf(over, "TASK_STATE_COMPLETED", {}));
});

test("the row of a user's open A2A task is written once, and removed with the end of the task", async () => {
  const store = createMemoryStore();
  const rows = new TaskRows(store, true);
  const record = recordOf("nap");
  const open = () => store.get(`a2p/ada/${record.task.id}`);
  let revision = await rows.create(record);
  const { revision: first } = (await open())!;
  const asking = ended(record, { state: "TASK_STATE_INPUT_REQUIRED", approvals: [{ approvalId: "1" }] as never });
  revision = await rows.change(record, asking, revision);
  assert.equal((await open())?.revision, first);
  await rows.change(asking, ended(asking, { state: "TASK_STATE_CANCELED" }), revision);
  assert.equal(await open(), undefined);
});

test("an A2A task that another process has written anew, to go on with it, is not removed by the one that could not begin it", async () => {
  const store = createMemoryStore();
  const rows = new TaskRows(store, true);
  const [taken, left] = [recordOf("nap"), recordOf("nap")];
  const [revision, other] = [await rows.create(taken), await rows.create(left)];
  await rows.change(taken, taken, revision);
  await rows.remove(taken, revision);
  await rows.remove(left, other);
  assert.notEqual(await rows.read("nap", taken.task.id), undefined);
  assert.equal(await rows.read("nap", left.task.id), undefined);
  assert.equal((await store.scan({ prefix: "a2", limit: 20 })).length, 6);
});
