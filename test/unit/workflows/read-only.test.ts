/** Steps whose plugin or tool says `readOnly`: they take no commit of their own. */
import assert from "node:assert/strict";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { openExecutionKey } from "../../../core/storage/keys.ts";
import { createMemoryStore } from "../../../core/storage/memory-store.ts";
import { openSqliteStore } from "../../../core/storage/sqlite-store.ts";
import { silent } from "../../support/agents.ts";
import { watched } from "../../support/memories.ts";
import { temporaryFolder } from "../../support/storage.ts";
import { CALL, processesOf } from "../../support/workflow-process.ts";

const PLUGINS = {
  "steps/pure.mjs": `export default { kind: "step", readOnly: true, execute: ({ data }) => ({ n: data.n + 1 }) };`,
  "steps/effect.mjs": `export default { kind: "step", execute: ({ data }) => { globalThis.readOnlyTest?.effect?.(); return { n: data.n + 1 }; } };`,
  "steps/lasting.mjs": `export default { kind: "step", readOnly: true, execute: async ({ data }) => { await globalThis.readOnlyTest.slow(); return { n: data.n + 1 }; } };`,
  "steps/shaky.mjs": `export default { kind: "step", readOnly: true, execute: ({ data, attempt }) => { globalThis.readOnlyTest.tried(attempt); if (attempt < 3) throw new Error("not yet"); return { n: data.n + 1 }; } };`,
  "tools/plus.mjs": `export default { kind: "tool", readOnly: true, execute: ({ n }) => ({ n: n + 1 }) };`,
};
const SET = { andThen: { set: { n: "{{ data.n }}" } } };
const use = (name: string, more: object = {}) => ({ andThen: { use: name }, ...more });

interface Hooks {
  effect?(): void;
  slow?(): Promise<void>;
  tried?(attempt: number): void;
}

async function opened(t: TestContext, steps: readonly object[], hooks: Hooks = {}, on = createMemoryStore()) {
  (globalThis as { readOnlyTest?: Hooks }).readOnlyTest = hooks;
  const { store, seen } = watched(on);
  const workflow = { steps: steps.map((step, index) => ({ id: `s${index}`, ...step })) };
  const manifest = { tools: { plus: { use: "plus" } }, workflows: { w: workflow } };
  const { opened, access } = await (await processesOf(t, manifest, { plugins: PLUGINS }))({ ...store, kind: "sqlite" });
  seen.commits.length = 0;
  const execute = async () => JSON.parse((await access.execute("w", { input: { n: 1 } }, CALL)).json);
  return { store, seen, access, engine: opened.engine, execute };
}

const STEPS: readonly [what: string, steps: readonly object[], commits: number][] = [
  ["two plugins with effects and a mapping", [use("effect"), SET, use("effect")], 3],
  [
    "a plugin with effects, a mapping and a tool that is read-only",
    [use("effect"), SET, { andThen: { tool: "plus" } }],
    2,
  ],
  ["read-only steps before one with effects", [use("pure"), SET, use("effect")], 2],
  ["read-only steps alone", [use("pure"), SET, { andThen: { tool: "plus" } }], 1],
];

for (const [what, steps, commits] of STEPS) {
  test(`an execution of ${what} takes ${commits} commits`, async (t) => {
    const { seen, execute } = await opened(t, steps);
    const { status, result } = await execute();
    assert.deepEqual([status, result], ["completed", { n: 1 + steps.filter((step) => step !== SET).length }]);
    assert.equal(seen.commits.length, commits);
  });
}

test("an execution of a plugin that fails, then a mapping and a read-only tool in its onError, takes 2 commits", async (t) => {
  const handled = [
    { id: "m", ...SET },
    { id: "p", andThen: { tool: "plus" } },
  ];
  const fails = () => {
    throw new Error("no");
  };
  const { seen, execute } = await opened(t, [use("effect", { onError: handled })], { effect: fails });
  assert.deepEqual((await execute()).result, { n: 2 });
  assert.equal(seen.commits.length, 2);
});

test("an execution of a bail before a plugin with effects takes 1 commit, and 2 when it does not hold", async (t) => {
  for (const [text, commits] of [
    ["true", 1],
    ["false", 2],
  ] as const) {
    const { seen, execute } = await opened(t, [SET, { bail: { if: text } }, use("effect")]);
    assert.equal((await execute()).status, "completed");
    assert.equal(seen.commits.length, commits);
  }
});

test("an execution of three steps on SQLite, of which one is a mapping, takes 3 commits", async (t) => {
  const file = join(await temporaryFolder(t), "store.db");
  const sqlite = await openSqliteStore({ file, where: file, synchronous: "normal", logger: silent });
  t.after(() => sqlite.close());
  const { seen, execute } = await opened(t, [use("effect"), SET, use("effect")], {}, sqlite);
  assert.deepEqual((await execute()).result, { n: 3 });
  assert.equal(seen.commits.length, 3);
});

test("what was done is on disk before a step with effects runs", async (t) => {
  const { store, seen, engine, execute } = await opened(t, [use("pure"), use("effect")], {
    effect: () => assert.equal(seen.commits.length, 1),
  });
  const running = execute();
  const [number] = engine.liveNumbers();
  await running;
  assert.match(seen.commits[0]!.put![0]![1], /"done","s0".*"begin","s1"/);
  assert.equal(await store.get(openExecutionKey(number!)), undefined);
});

test("a read-only step that takes time is recorded while it runs", async (t) => {
  let release = () => {};
  const held = new Promise<void>((resolve) => {
    release = resolve;
  });
  const { store, engine, access, execute } = await opened(t, [use("lasting")], { slow: () => held });
  const running = execute();
  const [number] = engine.liveNumbers();
  assert.ok(number !== undefined);
  while ((await store.get(openExecutionKey(number!))) === undefined) await new Promise(setImmediate);
  const [execution] = engine.live.values();
  assert.equal((await access.state("w", execution!.state.start.id)).status, "running");
  release();
  assert.equal((await running).status, "completed");
});

test("a failed try of a read-only step is on disk before the next", async (t) => {
  const commits: number[] = [];
  const { seen, execute } = await opened(t, [use("shaky", { retry: { attempts: 2, delay: "0s" } })], {
    tried: () => commits.push(seen.commits.length),
  });
  assert.equal((await execute()).status, "completed");
  assert.deepEqual(commits, [0, 1, 2]);
});

test("many read-only steps do not wait for the end to be recorded", async (t) => {
  const { seen, execute } = await opened(
    t,
    Array.from({ length: 200 }, () => use("pure")),
  );
  assert.deepEqual((await execute()).result, { n: 201 });
  // Two entries for each step, at most 64 and those of a step in one commit.
  assert.ok(seen.commits.length >= 6, `${seen.commits.length} commits`);
});
