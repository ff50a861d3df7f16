/** What a process does to take over what others left: it goes on living, harms nothing of its own, and one that is broken stops nothing. */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { unavailable } from "../../core/lib/errors.ts";
import { definitionKey, executionKey, journalKey, OPEN_EXECUTIONS, PROCESSES } from "../../core/storage/keys.ts";
import { Membership } from "../../core/storage/membership.ts";
import { createMemoryStore } from "../../core/storage/memory-store.ts";
import type { Store } from "../../core/storage/store.ts";
import { recoverExecutions } from "../../core/workflows/cluster/recovery.ts";
import { parseRecordRow } from "../../core/workflows/journal/entries.ts";
import { silent } from "../support/agents.ts";
import { collectEvents } from "../support/event-sink.ts";
import { until } from "../support/probe.ts";
import { soon } from "../support/providers.ts";
import { recordingLogger } from "../support/storage.ts";
import { CALL, cutStore, processesOf, refusal } from "../support/workflow-process.ts";

const world = { runs: [] as string[], asked: 0, open: Promise.resolve() as Promise<unknown> };
(globalThis as { penstockTakeOver?: typeof world }).penstockTakeOver = world;

const PLUGINS = {
  "steps/pause.mjs": `export default { kind: "step", execute: async ({ data, idempotencyKey }) => {
    const world = globalThis.penstockTakeOver; world.runs.push(idempotencyKey); await world.open; return data; } };`,
  "steps/never.mjs": `export default { kind: "step", execute: () => new Promise(() => {}) };`,
};

const WORKFLOWS = {
  w: { steps: [{ id: "one", andThen: { use: "pause" } }] },
  race: {
    recovery: "fail",
    steps: [
      {
        id: "first",
        andRace: [
          { id: "quick", andThen: { set: { n: 1 } } },
          { id: "slow", andThen: { use: "never" } },
        ],
      },
      { id: "ask", andThen: { suspend: { reason: "Yes?" } } },
      { id: "last", andThen: { use: "never" } },
    ],
  },
};

const TIMES = { heartbeatInterval: 30, leaseTimeout: 240, stopRequestInterval: 10_000 };
const never = new Promise<never>(() => {});
const input = (id: string) => ({ input: { a: 1 }, options: { executionId: id } });

/** Views of one store that says it is shared. `change`: what a view does in another way. */
async function shared(t: TestContext, limits: object = {}) {
  const base = createMemoryStore();
  const unbounded = await processesOf(t, { workflows: WORKFLOWS }, { plugins: PLUGINS });
  const start = await processesOf(t, { workflows: WORKFLOWS, server: { limits } }, { plugins: PLUGINS });
  world.runs = [];
  world.open = Promise.resolve();
  const open = async (change: Partial<Store> = {}, { logger = silent, processTimes = TIMES } = {}) => {
    const process = await start({ ...base, kind: "shared", ...change }, { logger, processTimes });
    t.after(() => Promise.race([process.opened.close(), new Promise((resolve) => setTimeout(resolve, 100))]));
    return process;
  };
  /** Runs executions in a process that is killed then: it answers nothing any more, and its heartbeat is old. */
  const killed = async (ids: readonly string[], workflow = "w") => {
    const store = cutStore(base, "shared");
    const process = await unbounded(store, { processTimes: { ...TIMES, heartbeatInterval: 60_000 } });
    world.open = never;
    for (const id of ids) process.access.execute(workflow, input(id), CALL).catch(() => {});
    await until(
      async () => (await base.scan({ prefix: OPEN_EXECUTIONS, limit: 999 })).length >= ids.length,
      "the start",
    );
    store.arm(0);
    await base.commit({ delete: [(await base.scan({ prefix: PROCESSES, limit: 1 }))[0]!.key] });
    world.runs = [];
    world.open = Promise.resolve();
  };
  return { base, open, killed };
}

test("a process that takes over for long writes its heartbeat all the time", async (t) => {
  const { base, open, killed } = await shared(t);
  await killed(Array.from({ length: 60 }, (_, index) => `e${index}`));
  let heartbeats = 0;
  let slowReads = 0;
  const slow: Partial<Store> = {
    commit(commit) {
      if (commit.put?.some(([key]) => key.startsWith(PROCESSES))) heartbeats++;
      return base.commit(commit);
    },
    // A read of what is taken over takes as long as the next heartbeat does: for ever where there is none meanwhile.
    async getMany(keys) {
      const before = heartbeats;
      if (before > 0 && slowReads++ < 20) await until(() => heartbeats > before, "a heartbeat during a read");
      return base.getMany(keys);
    },
  };
  await open(slow);
  assert.ok(slowReads > 20, "it took long");
  assert.equal(new Set(world.runs).size, 60);
});

test("a process takes over as many executions at once as limits.executions allows, and the others as these end", async (t) => {
  const { open, killed } = await shared(t, { executions: 2 });
  const ids = Array.from({ length: 7 }, (_, index) => `e${index}`);
  await killed(ids);
  let go: (value?: unknown) => void = () => {};
  world.open = new Promise((resolve) => {
    go = resolve;
  });
  const { access, opened } = await soon(open(), "the start");
  await until(() => world.runs.length === 2, "two that go on");
  await assert.rejects(access.execute("w", input("new"), CALL), /server\.limits\.executions/);
  assert.equal(opened.engine.live.size, 2);
  go();
  for (const id of ids)
    await until(async () => (await access.state("w", id)).status === "completed", `the end of ${id}`);
  assert.equal(world.runs.length, 7);
  await access.execute("w", input("new"), CALL);
});

test("an execution that begins and ends while its process looks at what is open is not run again", async (t) => {
  const { base, open } = await shared(t);
  let meanwhile: (() => Promise<void>) | null = null;
  let slow: Promise<unknown> = Promise.resolve();
  const { access, opened } = await open(
    {
      async scan(range) {
        if (range.prefix === OPEN_EXECUTIONS) await meanwhile?.();
        return base.scan(range);
      },
      async getMany(keys) {
        const rows = await base.getMany(keys);
        if (meanwhile !== null) await slow;
        return rows;
      },
    },
    { processTimes: { ...TIMES, heartbeatInterval: 60_000 } },
  );
  let go: (value?: unknown) => void = () => {};
  world.open = new Promise((resolve) => {
    go = resolve;
  });
  let executed: Promise<unknown> = Promise.resolve();
  meanwhile = async () => {
    executed = access.execute("w", input("e"), CALL);
    await until(() => world.runs.length === 1, "the step");
    // From here on rows are read as they were before it ended.
    slow = executed;
    setTimeout(go, 20);
  };
  assert.equal(
    await soon(
      recoverExecutions(opened.engine, () => false),
      "the look",
    ),
    0,
  );
  await executed;
  assert.equal((await access.state("w", "e")).status, "completed");
  assert.deepEqual(world.runs, ["e:one"]);
});

test("an execution that cannot be recovered is logged, and stops neither the others nor the service", async (t) => {
  const { base, open, killed } = await shared(t);
  await killed(["a", "b", "c", "d"]);
  const rows = await base.scan({ prefix: OPEN_EXECUTIONS, limit: 9 });
  const spoiled = JSON.parse(rows[1]!.value);
  spoiled[1].definition = "broken";
  await base.commit({
    put: [
      [rows[0]!.key, "no JSON"],
      [rows[1]!.key, JSON.stringify(spoiled)],
      [definitionKey("broken"), '{"workflowId":"w"}'],
      [journalKey(spoiled[1].number + 1, 0), "no JSON"],
    ],
  });
  const { logger, lines } = recordingLogger();
  const { access } = await open({}, { logger });
  await until(async () => (await access.state("w", "d")).status === "completed", "the end of the one that can");
  assert.deepEqual(world.runs, ["d:one"]);
  assert.equal(
    lines.filter((line) => /error: an execution cannot be recovered/.test(line)).length,
    3,
    lines.join("\n"),
  );
});

test("a process that shows that it lives while it is given up is not forgotten", async (t) => {
  const { base, open } = await shared(t);
  const key = `${PROCESSES}late`;
  await base.commit({ put: [[key, "1"]] });
  let forgotten = false;
  await open({
    async commit(commit) {
      if (commit.delete?.includes(key) && !forgotten) {
        forgotten = true;
        await base.commit({ put: [[key, String(Date.now() + 60_000)]] });
      }
      return base.commit(commit);
    },
  });
  await until(() => forgotten, "the end of its time");
  await new Promise((resolve) => setTimeout(resolve, TIMES.heartbeatInterval * 2));
  assert.ok(Number((await base.get(key))?.value) > 1, "its row is there");
});

test("open executions are not read as long as no process is gone", async (t) => {
  const { base, open } = await shared(t);
  let looks = 0;
  let rounds = 0;
  const counting: Partial<Store> = {
    scan(range) {
      if (range.prefix === OPEN_EXECUTIONS) looks++;
      if (range.prefix === PROCESSES) rounds++;
      return base.scan(range);
    },
  };
  await open(counting);
  await open();
  looks = 0;
  rounds = 0;
  await until(() => rounds >= 10, "looks at the processes");
  assert.ok(looks <= 1, `${looks} looks at what runs in ${rounds} rounds`);
});

test("GET /workflows/executions of a shared store: lists that come together look at the open executions once", async (t) => {
  const { base, open } = await shared(t);
  const first = await open({}, { processTimes: { ...TIMES, heartbeatInterval: 60_000 } });
  world.open = never;
  first.access.execute("w", input("e"), CALL).catch(() => {});
  await until(() => world.runs.length === 1, "the step");
  let looks = 0;
  const counting: Partial<Store> = {
    async scan(range) {
      if (range.prefix === OPEN_EXECUTIONS) looks++;
      await new Promise(setImmediate);
      return base.scan(range);
    },
  };
  const { access } = await open(counting, { processTimes: { ...TIMES, heartbeatInterval: 60_000 } });
  looks = 0;
  const lists = Array.from({ length: 20 }, () => access.executions({ limit: 5, offset: 0 }));
  for (const page of await Promise.all(lists))
    assert.deepEqual(
      JSON.parse(await page.whole()).map(({ id }: { id: string }) => id),
      ["e"],
    );
  assert.equal(looks, 1);
  await access.executions({ limit: 5, offset: 0 });
  assert.equal(looks, 2, "a later one looks again");
});

test("recovery: fail blames the step that was interrupted, and none that had lost a race", async (t) => {
  const { base, open } = await shared(t);
  const first = await open({}, { processTimes: { ...TIMES, heartbeatInterval: 60_000 } });
  assert.equal(JSON.parse((await first.access.execute("race", input("e"), CALL)).json).status, "suspended");
  // Resumed by a process that ended before its step began.
  const number = Number((await base.get("xn/e"))!.value);
  const { rows, tail } = parseRecordRow((await base.get(executionKey(number)))!.value);
  const entries = [...tail, ["resume", "ask", Date.now(), {}]];
  await base.commit({
    put: [
      [`${OPEN_EXECUTIONS}${executionKey(number).split("/")[1]}`, '["gone",null,null]'],
      [journalKey(number, rows), JSON.stringify(entries)],
    ],
  });
  const { access } = await open({}, { processTimes: { ...TIMES, heartbeatInterval: 60_000 } });
  await until(async () => (await access.state("race", "e")).status === "error", "the end");
  const events = await collectEvents(await access.attach("race", "e", 0));
  const failed = events.filter(({ data }) => data.type === "step-error").map(({ data }) => data.from);
  assert.ok(!failed.includes("slow"), `blamed: ${failed}`);
  const [record] = JSON.parse(await (await access.executions({ limit: 1, offset: 0 })).whole());
  assert.ok(!JSON.stringify(record.error).includes("slow"), JSON.stringify(record.error));
});

/** Its model asks for the tool `mark` once `world.open` has resolved. */
const AGENT_PLUGINS = {
  "tools/mark.mjs": `export default { kind: "tool", parameters: { type: "object" }, execute: () => {
    globalThis.penstockTakeOver.runs.push("mark"); return {}; } };`,
  "providers/late.mjs": `export default { kind: "provider", create: () => ({ retries: 0,
    languageModel: (modelId) => ({ specificationVersion: "v3", provider: "late", modelId, supportedUrls: {},
      doStream: async ({ prompt }) => {
        globalThis.penstockTakeOver.asked++;
        await globalThis.penstockTakeOver.open;
        const reason = prompt.at(-1).role === "tool" ? "stop" : "tool-calls";
        const call = { type: "tool-call", toolCallId: "1", toolName: "mark", input: "{}" };
        const usage = { inputTokens: { total: 1 }, outputTokens: { total: 1 } };
        const finish = { type: "finish", finishReason: { unified: reason, raw: reason }, usage };
        return { stream: ReadableStream.from(reason === "stop" ? [finish] : [call, finish]) };
      } }) }) };`,
};

test("an agent in a step begins no tool call before its process knows that it was not taken for gone, and none when it was", async (t) => {
  const manifest = {
    providers: { demo: { use: "late" } },
    tools: { mark: { use: "mark" } },
    agents: { a: { name: "A", description: "A", model: "demo/any", memory: false, tools: ["mark"] } },
    workflows: { w: { steps: [{ id: "s", andAgent: { agent: "a", prompt: "go" } }] } },
  };
  const start = await processesOf(t, manifest, { plugins: AGENT_PLUGINS });
  for (const isTaken of [false, true]) {
    const base = createMemoryStore();
    let answer = () => {};
    let away: Promise<void> | null = null;
    const commit: Store["commit"] = async (wanted) => {
      if (wanted.put?.some(([key]) => key.startsWith(PROCESSES))) await away;
      return base.commit(wanted);
    };
    const store: Store = { ...base, kind: "shared", commit };
    const membership = new Membership(store, { logger: silent, times: TIMES });
    let confirms = 0;
    const confirm = membership.confirm.bind(membership);
    membership.confirm = (signal) => {
      confirms++;
      return confirm(signal);
    };
    const { opened, access } = await start(store, { processTimes: TIMES, membership });
    t.after(() => opened.close());
    let go = () => {};
    Object.assign(world, { runs: [], asked: 0, open: new Promise<void>((resolve) => (go = resolve)) });
    const ended = access.execute("w", input("e"), CALL).catch((error: Error) => error);
    await until(() => world.asked > 0, "the model");
    away = new Promise((resolve) => (answer = resolve));
    await until(() => !membership.isHeld(), "the end of the lease");
    if (isTaken) await base.commit({ clear: [PROCESSES] });
    go();
    await until(() => confirms > 0 || world.runs.length > 0, "the tool call");
    assert.deepEqual(world.runs, []);
    away = null;
    answer();
    await ended;
    assert.deepEqual(world.runs, isTaken ? [] : ["mark"]);
  }
});

test("a store that is away while a process takes over ends the look; it is made again when the store is back", async (t) => {
  const { base, open, killed } = await shared(t);
  await killed(["e"]);
  let away = true;
  const flaky: Partial<Store> = {
    getMany: (keys) => (away ? Promise.reject(unavailable("storage is away")) : base.getMany(keys)),
  };
  assert.equal((await refusal(open(flaky))).kind, "unavailable", "a service does not begin without its store");
  away = false;
  const { access } = await open(flaky);
  await until(async () => (await access.state("w", "e")).status === "completed", "the end");
});
