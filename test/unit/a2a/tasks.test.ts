/** Tasks between two processes on one store, on a store that fails, and after a process that died. */
import assert from "node:assert/strict";
import { before, describe, type TestContext, test } from "node:test";
import { followRemoteTask, type TaskEvent } from "../../../core/a2a/follow.ts";
import type { Task } from "../../../core/a2a/task.ts";
import { newTaskId } from "../../../core/a2a/task-ids.ts";
import { TaskKeeper } from "../../../core/a2a/task-keeper.ts";
import { TaskRows } from "../../../core/a2a/task-rows.ts";
import { MAX_ANSWER_CHARACTERS, type TaskRun } from "../../../core/a2a/task-run.ts";
import { removeSurplusTasks } from "../../../core/a2a/task-surplus.ts";
import { Tasks } from "../../../core/a2a/tasks.ts";
import type { Agent } from "../../../core/agents/agent.ts";
import { NOBODY } from "../../../core/identity/caller.ts";
import { EVERYTHING, type Principal } from "../../../core/identity/principal.ts";
import { unavailable } from "../../../core/lib/errors.ts";
import { processKey } from "../../../core/storage/keys.ts";
import { Membership } from "../../../core/storage/membership.ts";
import { createMemoryStore } from "../../../core/storage/memory-store.ts";
import type { Store } from "../../../core/storage/store.ts";
import { WakeTopics } from "../../../core/storage/wake-topics.ts";
import { soon } from "../../support/providers.ts";
import { manifestWith, startService } from "../../support/service.ts";
import { recordingLogger } from "../../support/storage.ts";

const ADA: Principal = { userId: "ada", isolated: true };
const BOB: Principal = { userId: "bob", isolated: true };

let agents: ReadonlyMap<string, Agent>;
before(async (t) => {
  const demo = {
    use: "scripted",
    models: { slow: { firstDelay: "60s" }, pieces: { chunks: 5, delay: "100ms" }, nap: { firstDelay: "300ms" } },
  };
  const agent = (model: string) => ({ instructions: "x", model, memory: false });
  const service = await startService(t as TestContext, {
    ...manifestWith(),
    providers: { demo },
    agents: { slow: agent("demo/slow"), desk: agent("demo/pieces"), nap: agent("demo/nap") },
  });
  agents = service.service.agents;
});

/** A store that other processes use too. */
const shared = (): Store => ({ ...createMemoryStore(), kind: "postgres" });

/** Writes its heartbeats. */
async function member(t: TestContext, store: Store): Promise<Membership> {
  const times = { heartbeatInterval: 20, leaseTimeout: 60_000 };
  const membership = new Membership(store, { logger: recordingLogger().logger, times });
  await membership.start();
  t.after(() => membership.release());
  return membership;
}

function processOn(
  t: TestContext,
  store: Store,
  { membership = null, pollInterval }: { membership?: Membership | null; pollInterval?: number } = {},
) {
  const { logger, lines } = recordingLogger();
  const rows = new TaskRows(store, true, membership);
  const tasks = new Tasks(rows, { logger, pollInterval });
  t.after(() => tasks.close());
  const keeper = (retention = 60_000) => new TaskKeeper(rows, { hasAgents: true, retention, logger });
  const begin = (agent: string, principal = ADA, messageId = newTaskId(Date.now())): Promise<TaskRun> =>
    tasks.begin(
      agents.get(agent)!,
      {
        message: { messageId, role: "ROLE_USER", parts: [{ text: "a text of some length" }] },
        contextId: "c",
        body: { input: [{ role: "user", content: "a text of some length" }] },
        content: "a text of some length",
      },
      principal,
      { user: null, caller: NOBODY, requestId: "r", logger },
    );
  const stateOf = async (agent: string, id: string) => (await tasks.find(agent, id, EVERYTHING))?.task.status.state;
  return { tasks, rows, begin, keeper, stateOf, lines };
}

const idOf = (run: TaskRun) => run.record.task.id;
const whenOver = async (run: TaskRun) => {
  if (!run.isOver) await run.over.wait(new AbortController().signal, 20_000);
};

describe("two processes on one store", () => {
  test("one cancels what the other works on, whose agent stops", async (t) => {
    const store = shared();
    const [one, two] = [processOn(t, store), processOn(t, store)];
    const run = await one.begin("slow");
    assert.equal(await two.tasks.cancel("slow", idOf(run), BOB), undefined, "not somebody else's");
    assert.equal((await two.tasks.cancel("slow", idOf(run), ADA))?.status.state, "TASK_STATE_CANCELED");
    await whenOver(run);
    assert.equal(run.signal.aborted, true);
    assert.equal(await one.stateOf("slow", idOf(run)), "TASK_STATE_CANCELED");
  });

  test("on a store that wakes the others, a cancel and the end reach the other one without a poll", async (t) => {
    const NEVER = 600_000;
    const topics = new WakeTopics(async () => {});
    const wakes = { wake: topics.wake.bind(topics), watch: topics.watch.bind(topics) };
    const store = { ...shared(), ...wakes };
    const [one, two] = [processOn(t, store, { pollInterval: NEVER }), processOn(t, store, { pollInterval: NEVER })];
    const run = await one.begin("slow");
    const seen = await two.tasks.find("slow", idOf(run), ADA);
    const follow = async () => {
      const record = { agent: "slow", task: seen!.task };
      const events: TaskEvent[] = [];
      for await (const event of followRemoteTask(two.tasks, record, ADA, new AbortController().signal, NEVER))
        events.push(event);
      return events;
    };
    const following = follow();
    assert.equal((await two.tasks.cancel("slow", idOf(run), ADA))?.status.state, "TASK_STATE_CANCELED");
    await whenOver(run);
    assert.equal(run.signal.aborted, true);
    const last = (await soon(following, "the end")).at(-1) as { endOf: Task };
    assert.equal(last.endOf.status.state, "TASK_STATE_CANCELED");
  });

  test("one follows what the other works on: the answer comes with its end", async (t) => {
    const store = shared();
    const [one, two] = [processOn(t, store), processOn(t, store)];
    const run = await one.begin("desk");
    const seen = await two.tasks.find("desk", idOf(run), ADA);
    assert.equal(seen?.run, undefined);
    const events: TaskEvent[] = [];
    const record = { agent: "desk", task: seen!.task };
    for await (const event of followRemoteTask(two.tasks, record, ADA, new AbortController().signal))
      events.push(event);
    assert.deepEqual(
      events.map((event) => Object.keys(event).sort()[0]),
      ["task", "append", "endOf"],
    );
  });

  test("a message that has begun a task in one begins none in the other, and neither does one that comes at the same time", async (t) => {
    const store = shared();
    const [one, two] = [processOn(t, store), processOn(t, store)];
    const run = await one.begin("nap", ADA, "m-1");
    await assert.rejects(two.begin("nap", ADA, "m-1"), { name: "Error", task: idOf(run) });
    const [first, ...rest] = await Promise.allSettled(
      [one, two, one, two].map(({ begin }) => begin("nap", ADA, "m-2")),
    );
    assert.equal(first!.status, "fulfilled");
    assert.deepEqual(
      rest.map(({ status }) => status),
      ["rejected", "rejected", "rejected"],
    );
    assert.equal((await store.scan({ prefix: "a2i/", limit: 9 })).length, 2);
    assert.notEqual(idOf(await two.begin("nap", BOB, "m-1")), idOf(run), "the message of another user");
  });

  test("what a silent process left is failed, what a living one runs is not", async (t) => {
    const store = shared();
    const [silent, living] = [await member(t, store), await member(t, store)];
    const [one, two, three] = [silent, living, await member(t, store)].map((each) =>
      processOn(t, store, { membership: each }),
    );
    const [left, run] = [await one!.begin("slow"), await two!.begin("slow")];
    const keeper = three!.keeper();
    await keeper.start();
    t.after(() => keeper.close());
    assert.equal(await three!.stateOf("slow", idOf(left)), "TASK_STATE_WORKING", "both live");
    await silent.release();
    await whenOver(left);
    assert.equal(await three!.stateOf("slow", idOf(left)), "TASK_STATE_FAILED");
    assert.equal(left.record.task.status.state, "TASK_STATE_FAILED", "and its process takes that for the truth");
    assert.equal(await three!.stateOf("slow", idOf(run)), "TASK_STATE_WORKING");
  });

  test("a process that others have taken for gone ends what it works on, whose agent stops", async (t) => {
    const store = shared();
    const silent = await member(t, store);
    const one = processOn(t, store, { membership: silent });
    const run = await one.begin("slow");
    await store.commit({ delete: [processKey(silent.name)] });
    await whenOver(run);
    assert.equal(run.signal.aborted, true);
    assert.equal(await one.stateOf("slow", idOf(run)), "TASK_STATE_FAILED");
    assert.equal((await one.begin("nap")).isOver, false, "it takes new ones");
  });

  test("what a process runs whose clock is an hour slow is not failed by one that starts", async (t) => {
    const store = shared();
    const slow = await member(t, store);
    const [one, two] = [
      processOn(t, store, { membership: slow }),
      processOn(t, store, { membership: await member(t, store) }),
    ];
    const run = await one.begin("slow");
    const { value } = (await store.get(processKey(slow.name)))!;
    await store.commit({
      put: [[processKey(slow.name), JSON.stringify({ ...JSON.parse(value), at: Date.now() - 3_600_000 })]],
    });
    const keeper = two.keeper();
    await keeper.start();
    await keeper.close();
    assert.equal(await two.stateOf("slow", idOf(run)), "TASK_STATE_WORKING");
  });
});

describe("tasks in a store", () => {
  test("too old ones are forgotten with their rows; those that work, and young ones, stay", async (t) => {
    const store = createMemoryStore();
    const { begin, keeper, stateOf } = processOn(t, store);
    const [old, working] = [await begin("nap"), await begin("slow")];
    await whenOver(old);
    await keeper().forget(Date.now() - 10_000);
    assert.equal(await stateOf("nap", idOf(old)), "TASK_STATE_COMPLETED");
    await keeper().forget(Date.now() + 10_000);
    assert.equal(await stateOf("nap", idOf(old)), undefined);
    assert.equal(await stateOf("slow", idOf(working)), "TASK_STATE_WORKING");
    const left = await Promise.all(
      ["a2/", "a2i/", "a2u/", "a2o/", "a2m/"].map((prefix) => store.scan({ prefix, limit: 9 })),
    );
    assert.deepEqual(
      left.map((rows) => rows.length),
      [1, 1, 1, 1, 1],
    );
  });

  test("tasks of agents that are no more, and of users from before, are forgotten too", async (t) => {
    const store = createMemoryStore();
    const { begin, rows } = processOn(t, store);
    const run = await begin("nap");
    await whenOver(run);
    const { message: _, ...record } = run.record;
    const gone = { ...record, task: { ...run.record.task, id: newTaskId(Date.now()) } };
    for (const agent of ["gone", "gone-2", "gone2", "na"]) await rows.create({ ...gone, agent });
    const keeper = new TaskKeeper(new TaskRows(store, false), { hasAgents: true, retention: 1, ...recordingLogger() });
    await keeper.forget(Date.now() + 10_000);
    const left = await Promise.all(["a2/", "a2i/", "a2u/"].map((prefix) => store.scan({ prefix, limit: 9 })));
    assert.deepEqual(
      left.map((found) => found.length),
      [0, 0, 0],
    );
  });

  test("tasks in memory: take 16 MiB together: the oldest that are over are removed, and none that still works", async (t) => {
    const store = createMemoryStore();
    const { begin, rows } = processOn(t, store);
    const working = await begin("slow");
    const run = await begin("nap");
    await whenOver(run);
    const { message: _, ...record } = run.record;
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
    const left = await Promise.all(
      added.map(async ({ agent, task }) => (await rows.read(agent, task.id)) !== undefined),
    );
    assert.ok(!left.slice(0, left.indexOf(true)).includes(true) && !left.slice(left.indexOf(true)).includes(false));
    assert.equal(left.indexOf(true) > 100, true);
    assert.equal((await rows.read("slow", idOf(working)))?.record.task.status.state, "TASK_STATE_WORKING");
    working.abort("enough");
  });

  test("an end that the store does not take is told, and written when it does", async (t) => {
    const real = createMemoryStore();
    let failing = false;
    const store: Store = {
      ...real,
      commit: (commit) => (failing ? Promise.reject(unavailable("disk full")) : real.commit(commit)),
    };
    const { tasks, begin, rows, stateOf, lines } = processOn(t, store);
    const run = await begin("nap");
    failing = true;
    await whenOver(run);
    assert.equal(
      (await tasks.cancel("nap", idOf(run), ADA))?.status.state,
      "TASK_STATE_COMPLETED",
      "nobody waits for it",
    );
    assert.equal(await stateOf("nap", idOf(run)), "TASK_STATE_COMPLETED");
    assert.equal((await rows.read("nap", idOf(run)))?.record.task.status.state, "TASK_STATE_WORKING");
    assert.deepEqual(lines, ["error: the end of a task cannot be written: disk full"]);
    failing = false;
    const stored = async () => (await rows.read("nap", idOf(run)))?.record.task.status.state;
    for (let tries = 0; (await stored()) !== "TASK_STATE_COMPLETED" && tries < 6_000; tries++)
      await new Promise((resolve) => setTimeout(resolve, 20));
    assert.equal(await stored(), "TASK_STATE_COMPLETED");
    assert.equal((await real.scan({ prefix: "a2i/", limit: 9 })).length, 1, "at one place in the index");
  });

  test("a task that the store does not take does not begin", async (t) => {
    const store: Store = { ...createMemoryStore(), commit: () => Promise.reject(unavailable("disk full")) };
    const { begin } = processOn(t, store);
    await assert.rejects(begin("nap"), /disk full/);
    assert.equal(agents.get("nap")!.summary().status, "idle");
  });
});

test("an answer that is longer than it may be fails its task, and the agent stops", async (t) => {
  const { begin } = processOn(t, createMemoryStore());
  const run = await begin("slow");
  run.part({ type: "text-delta", id: "t", delta: "x".repeat(MAX_ANSWER_CHARACTERS) });
  assert.equal(run.ending, null);
  run.part({ type: "text-delta", id: "t", delta: "y" });
  await whenOver(run);
  const { status } = run.record.task;
  assert.equal(status.state, "TASK_STATE_FAILED");
  assert.match(status.message!.parts[0]!.text!, /longer than 4194304 characters/);
  assert.equal(run.signal.aborted, true);
});

test("a service that stops waits for tasks as long as it is told, then fails them, and takes no more", async (t) => {
  const { tasks, begin, stateOf } = processOn(t, createMemoryStore());
  const short = await begin("nap");
  await soon(tasks.idle(3_600_000), "the end of the nap");
  assert.equal(await stateOf("nap", idOf(short)), "TASK_STATE_COMPLETED");
  const long = await begin("slow");
  const began = performance.now();
  await tasks.idle(100);
  assert.ok(performance.now() - began >= 95);
  assert.equal(await stateOf("slow", idOf(long)), "TASK_STATE_WORKING");
  await tasks.close();
  assert.equal(await stateOf("slow", idOf(long)), "TASK_STATE_FAILED");
  await assert.rejects(begin("nap"), /the server is stopping/);
});
