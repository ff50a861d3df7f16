/** Commits that the store will never take, for what is in them: an execution ends with an error instead of waiting for ever. */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { unavailable } from "../../core/lib/errors.ts";
import { OPEN_EXECUTIONS } from "../../core/storage/keys.ts";
import { createMemoryStore } from "../../core/storage/memory-store.ts";
import type { Commit, Store } from "../../core/storage/store.ts";
import { collectEvents } from "../support/event-sink.ts";
import { until } from "../support/probe.ts";
import { soon } from "../support/providers.ts";
import { recordingLogger } from "../support/storage.ts";
import { CALL, processesOf, refusal } from "../support/workflow-process.ts";

const world = { runs: [] as string[] };
(globalThis as { penstockRefused?: typeof world }).penstockRefused = world;

const PLUGINS = {
  "steps/give.mjs": `export default { kind: "step", config: { type: "object", properties: { text: { type: "string" } } },
    execute: ({ idempotencyKey, config }) => { globalThis.penstockRefused.runs.push(idempotencyKey); return { text: config.text.toUpperCase() }; } };`,
};
const give = (id: string, text: string) => ({ id, andThen: { use: "give", with: { text: text.toLowerCase() } } });

const WORKFLOWS = {
  middle: { steps: [give("one", "fine"), give("two", "POISON"), give("three", "fine")] },
  last: { steps: [give("one", "fine"), give("two", "POISON")] },
  long: {
    steps: [
      ...Array.from({ length: 700 }, (_, index) => ({ id: `s${index}`, andThen: { set: { index } } })),
      give("one", "fine"),
      give("two", "POISON"),
      give("three", "fine"),
    ],
  },
  branches: {
    steps: [
      {
        id: "all",
        andAll: [
          [give("a", "POISON"), give("b", "fine")],
          [give("c", "fine"), give("d", "fine")],
        ],
      },
    ],
  },
  ask: { steps: [{ id: "ask", andThen: { suspend: { reason: "Yes?" } } }, give("one", "fine")] },
};

const holds = ({ put = [] }: Commit, text: string) => put.some(([, value]) => value.includes(text));

/** @param refuses what the store throws for a commit, if anything */
async function processOn(t: TestContext, refuses: (commit: Commit) => Error | null, kind = "sqlite") {
  const base = createMemoryStore();
  const store: Store = {
    ...base,
    kind,
    commit: async (commit) => {
      const error = refuses(commit);
      if (error !== null) throw error;
      return base.commit(commit);
    },
  };
  world.runs = [];
  const { logger, lines } = recordingLogger();
  const start = await processesOf(t, { workflows: WORKFLOWS }, { plugins: PLUGINS });
  const process = await start(store, {
    logger,
    processTimes: { heartbeatInterval: 20, leaseTimeout: 1_000, stopRequestInterval: 20 },
  });
  t.after(() => process.opened.close());
  return { ...process, base, lines, call: { ...CALL, logger } };
}

const tooLarge = (commit: Commit) => (holds(commit, "POISON") ? new RangeError("value too large: /srv/secret") : null);
const input = (id: string) => ({ input: {}, options: { executionId: id } });
const MESSAGE = "the execution cannot be recorded: the store refuses its data";

for (const [workflow, runs] of [
  ["middle", ["one", "two"]],
  ["last", ["one", "two"]],
  ["long", ["one", "two"]],
] as const) {
  test(`POST /workflows/:id/execute: a result that the store refuses ends the execution with an error (${workflow})`, async (t) => {
    const { access, base } = await processOn(t, tooLarge);
    const { kind, message, facts } = await soon(refusal(access.execute(workflow, input("e"), CALL)), "the reply");
    assert.deepEqual([kind, message, facts?.executionId], ["step_failed", MESSAGE, "e"]);
    assert.equal((await access.state(workflow, "e")).status, "error");
    assert.deepEqual(
      world.runs,
      runs.map((id) => `e:${id}`),
    );
    assert.deepEqual(await base.scan({ prefix: OPEN_EXECUTIONS, limit: 1 }), []);
    const [record] = JSON.parse(await (await access.executions({ limit: 1, offset: 0 })).whole());
    assert.equal(record.status, "error");
    assert.ok(
      record.events.some(({ id, status }: { id: string; status: string }) => id === "step:one" && status === "success"),
    );
    const events = await collectEvents(await access.attach(workflow, "e", 0));
    assert.deepEqual(
      events.map(({ id }) => id),
      events.map((_event, index) => index + 1),
    );
    assert.deepEqual(
      events.slice(-3).map(({ data }) => data.type),
      ["step-start", "workflow-error", "workflow-result"],
    );
  });
}

test("POST /workflows/:id/stream: a reader sees the same end, and nothing of what the store refused", async (t) => {
  const { access } = await processOn(t, tooLarge);
  const events = await soon(collectEvents(await access.stream("middle", input("e"), CALL)), "the end");
  assert.equal(events.at(-1)?.data.type, "workflow-result");
  assert.ok(!JSON.stringify(events).includes("POISON"));
  assert.deepEqual(events, await collectEvents(await access.attach("middle", "e", 0)));
});

test("a refused commit of one branch ends the others too", async (t) => {
  const { access } = await processOn(t, tooLarge);
  assert.equal((await soon(refusal(access.execute("branches", input("e"), CALL)), "the reply")).message, MESSAGE);
  assert.equal((await access.state("branches", "e")).status, "error");
});

test("POST .../resume: a resume that the store refuses leaves the execution suspended", async (t) => {
  const { access } = await processOn(t, tooLarge);
  await access.execute("ask", input("e"), CALL);
  await soon(refusal(access.resume("ask", "e", { resumeData: { a: "POISON" } }, CALL)), "the reply");
  assert.equal((await access.state("ask", "e")).status, "suspended");
  assert.equal(JSON.parse((await access.resume("ask", "e", { resumeData: {} }, CALL)).json).status, "completed");
});

test("a store that comes back with a refusal after it was away ends the execution", async (t) => {
  let away = 2;
  const { access, lines, call } = await processOn(t, (commit) => {
    if (!holds(commit, "POISON")) return null;
    return away-- > 0 ? unavailable("storage is away") : new Error("no");
  });
  assert.equal((await refusal(access.execute("middle", input("e"), call))).kind, "unavailable");
  await until(async () => (await access.state("middle", "e")).status === "error", "the end");
  assert.equal(lines.filter((line) => /cannot be recorded and waits/.test(line)).length, 1);
});

test("an execution of which nothing can be recorded any more is given up, and its steps are not run over and over", async (t) => {
  let refusing = false;
  const { access, lines } = await processOn(
    t,
    (commit) => {
      if (holds(commit, "POISON")) refusing = true;
      return refusing && !commit.put?.[0]?.[0].startsWith("xp/") ? new TypeError("no") : null;
    },
    "shared",
  );
  const following = access.stream("middle", input("e"), CALL).then((producer) => refusal(collectEvents(producer)));
  assert.equal((await soon(following, "the end of the stream")).kind, "unavailable");
  assert.equal(lines.filter((line) => /is given up here/.test(line)).length, 1);
  refusing = false;
  // More than the looks of a process at all that is open.
  await new Promise((resolve) => setTimeout(resolve, 600));
  assert.deepEqual(world.runs, ["e:one", "e:two"]);
});
