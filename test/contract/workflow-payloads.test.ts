/** Large values in executions: one that steps pass on is stored once and shown everywhere, and `server.limits.execution` bounds the whole. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { createMemoryStore } from "../../core/storage/memory-store.ts";
import type { Commit, Store } from "../../core/storage/store.ts";
import { validators } from "../../generated/all-validators.js";
import { pluginFolder } from "../support/plugin-folder.ts";
import { temporaryFolder } from "../support/storage.ts";
import { CALL, processesOf } from "../support/workflow-process.ts";
import { refused, startWorkflows } from "../support/workflow-service.ts";

const ECHO = `export default { kind: "step", execute: ({ data }) => data };`;
const GROW = `export default { kind: "step", execute: ({ data, idempotencyKey }) => ({ text: "y".repeat(data.size), idempotencyKey }) };`;
const ADDED = `export default { kind: "step", execute: ({ data }) => ({ ...data, more: 1 }) };`;
const WRITTEN = `export default { kind: "tool", parameters: { type: "object" }, execute: (input) => input };`;
const PLUGINS = {
  "steps/echo.mjs": ECHO,
  "steps/grow.mjs": GROW,
  "steps/added.mjs": ADDED,
  "tools/echo_back.mjs": WRITTEN,
};

/** A store that records as one on disk does, and counts what is written. */
function countingStore(): Store & { characters: number } {
  const store = createMemoryStore();
  const counting = {
    ...store,
    kind: "sqlite" as const,
    characters: 0,
    commit(commit: Commit) {
      for (const [, value] of commit.put ?? []) counting.characters += value.length;
      return store.commit(commit);
    },
  };
  return counting;
}

const LARGE = { text: "x".repeat(100_000), list: [1, { a: "b" }] };
/** Each passes its input on, in a way of its own. */
const WAYS = [
  { andThen: { set: "{{ data }}" } },
  { andThen: { use: "echo" } },
  { andThen: { tool: "echo_back" } },
  { andThen: { set: { text: "{{ data.text }}", list: "{{ data.list }}" } } },
  { andWorkflow: { workflow: "inner" } },
  { andWorkflow: { workflow: "inner", input: { text: "{{ data.text }}", list: "{{ data.list }}" } } },
  { andAll: [{ id: "all", andThen: { use: "echo" } }] },
  { andRace: [{ id: "race", andThen: { use: "echo" } }] },
];
const STEPS = WAYS.map((way, at) => ({ id: `s${at}`, ...way }));
const MANIFEST = {
  tools: { echo_back: { use: "echo_back" } },
  workflows: {
    w: { steps: [...STEPS, { id: "ask", andThen: { suspend: {} } }] },
    inner: { steps: [{ id: "e", andThen: { use: "echo" } }] },
  },
};

test("steps that pass a large value on store it a few times in all, and record, stream, state and replay show it whole", async (t) => {
  const start = await processesOf(t, MANIFEST, { plugins: PLUGINS });
  const store = countingStore();
  const { access } = await start(store);
  await access.execute("w", { input: LARGE, options: { executionId: "one" } }, CALL);
  // The start and its record, which has the start too.
  const size = JSON.stringify(LARGE).length;
  assert.ok(store.characters < 4 * size, `${store.characters} characters`);

  const later = (await start(store)).access;
  const resumed = JSON.parse((await later.resume("w", "one", {}, CALL)).json) as { result: unknown };
  assert.deepEqual(resumed.result, LARGE);
  assert.ok(store.characters < 7 * size, `${store.characters} characters`);
  const [record] = JSON.parse(await (await later.executions({ limit: 10, offset: 0 })).whole()) as [
    { input: unknown; output: unknown; events: { from: string; output?: unknown }[] },
  ];
  assert.ok(validators.WorkflowExecution(record), JSON.stringify(validators.WorkflowExecution.errors));
  assert.deepEqual([record.input, record.output], [LARGE, LARGE]);
  for (const { id } of STEPS) assert.deepEqual(record.events.find(({ from }) => from === id)?.output, LARGE, id);
  assert.deepEqual((await later.state("w", "one")).input, LARGE);

  const outputs: unknown[] = [];
  const send = (json: string) => {
    const { type, input, output } = JSON.parse(json) as { type: string; input: unknown; output: unknown };
    if (type === "step-complete" || type === "workflow-complete") outputs.push(output);
    if (type === "step-start") outputs.push(input);
    return undefined;
  };
  await (await later.attach("w", "one", 0))({ open() {}, send, closed: false, onLeave() {} });
  // Each of the eight and the four steps inside them, the one that asks and begins twice, and the whole.
  assert.equal(outputs.length, 2 * 13 + 2);
  for (const output of outputs) assert.deepEqual(output, LARGE);

  const before = store.characters;
  const replayed = await later.replay("w", "one", { stepId: "s4" }, CALL);
  assert.match(replayed.json, /"status":"suspended"/);
  assert.ok(store.characters - before < 7 * size, `${store.characters - before} characters`);
});

test("a value that differs a little is stored whole", async (t) => {
  const steps = [
    { id: "a", andThen: { use: "added" } },
    { id: "b", andThen: { use: "echo" } },
  ];
  const start = await processesOf(t, { workflows: { w: { steps } } }, { plugins: PLUGINS });
  const { access } = await start(countingStore());
  const { json } = await access.execute("w", { input: LARGE }, CALL);
  assert.deepEqual((JSON.parse(json) as { result: unknown }).result, { ...LARGE, more: 1 });
});

const grow = { steps: [{ id: "only", andThen: { use: "grow" } }] };
const GROWING = {
  steps: ["a", "b", "c", "d"].map((id) => ({
    id: `${id}s`,
    andAll: [
      [
        { id: `${id}size`, andThen: { set: { size: 25_000 } } },
        { id, andThen: { use: "grow" } },
      ],
    ],
  })),
};

for (const kind of ["memory:", "sqlite:"]) {
  test(`POST /workflows/:id/execute on ${kind} an execution that records more than limits.execution ends with an error that names it`, async (t) => {
    const store = kind === "memory:" ? kind : `sqlite:${await temporaryFolder(t)}/test.db`;
    const limits = { server: { limits: { execution: "64KiB" } }, store };
    const { service, record } = await startWorkflows(t, { growing: GROWING, grow }, limits, {
      plugins: [pluginFolder(t, PLUGINS)],
    });
    const reply = await refused(
      service.post("/workflows/growing/execute", { input: null, options: { executionId: "one" } }),
    );
    const message = "the execution has recorded more than server.limits.execution allows: 64 KiB";
    assert.deepEqual([reply.status, reply.error], [500, message]);
    const { status, error, events } = await record("one");
    assert.deepEqual([status, error], ["error", { message }]);
    assert.ok(
      events.some(({ from, status: step }: { from: string; status: string }) => from === "b" && step === "success"),
    );
    assert.ok(
      !events.some(({ from, status: step }: { from: string; status: string }) => from === "c" && step === "success"),
    );
    const last = await refused(service.post("/workflows/grow/execute", { input: { size: 66_000 } }));
    assert.deepEqual([last.status, last.error], [500, message], "the only value");
    assert.equal((await service.post("/workflows/grow/execute", { input: { size: 60_000 } })).status, 200);
  });
}
