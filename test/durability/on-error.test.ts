/**
 * A process that dies after every single commit of an execution with `onError` and `bail`: another one goes on from the journal to the same
 * result. What has failed for good is not tried again, and what has ended early does not go on.
 */
import assert from "node:assert/strict";
import { join } from "node:path";
import { describe, type TestContext, test } from "node:test";
import { createMemoryStore } from "../../core/storage/memory-store.ts";
import { openSqliteStore } from "../../core/storage/sqlite-store.ts";
import type { Store } from "../../core/storage/store.ts";
import { createRandom } from "../crash/model.ts";
import { silent } from "../support/agents.ts";
import { LONG } from "../support/at-length.ts";
import { temporaryFolder } from "../support/storage.ts";
import { checkEvents, SURVIVAL_PLUGINS, survive, suspends } from "../support/survival.ts";
import { processesOf } from "../support/workflow-process.ts";

const PLUGINS = {
  ...SURVIVAL_PLUGINS,
  "steps/breaks.mjs": `export default { kind: "step", execute: async ({ idempotencyKey }) => {
      globalThis.penstockRuns.push([idempotencyKey, false]);
      await new Promise((resolve) => setImmediate(resolve));
      throw Object.assign(new Error("it never works"), { code: "broken" }); } };`,
  "steps/never.mjs": `export default { kind: "step", execute: ({ signal }) =>
      new Promise((resolve, reject) => signal.addEventListener("abort", () => reject(new Error("aborted")))) };`,
};

const MANIFEST = `
name: Test
version: 1.0.0
workflows:
  everything:
    recoveries: 100 # some of its processes die before they have recorded anything
    steps:
      - id: pay
        andThen: { use: breaks }
        onError:
          - { id: mend, andThen: { use: count } }
          - { id: ask, andThen: { use: wants } }
          - { id: told, andThen: { set: { n: "{{ data.n }}", code: "{{ error.code }}", at: "{{ error.stepId }}" } } }
      - id: both
        andAll:
          - [{ id: a1, andThen: { use: count } }, { id: a2, andThen: { use: breaks } }]
          - { id: b, andThen: { suspend: { reason: Never answered } } }
        onError:
          - id: fallback
            andRace: [{ id: slow, andThen: { use: never } }, { id: quick, andThen: { use: count } }]
            onError: [{ id: unused, andThen: { use: count } }]
          - { id: fell, andThen: { set: { both: "{{ error.stepId }}", n: "{{ data.n }}", before: "{{ steps.a1.n }}" } } }
      - { id: early, andWorkflow: { workflow: early } }
      - { id: whole, andWorkflow: { workflow: whole } }
      - { id: last, andThen: { use: breaks } }
    onError:
      - { id: final, andThen: { use: count } }
      - { id: bye, bail: { if: "error.code == 'broken'", result: { at: "{{ error.stepId }}", steps: "{{ steps }}", count: "{{ state.count }}" } } }
      - { id: unreached, andThen: { use: breaks } }
  early:
    steps:
      - { id: e1, andThen: { use: wants } }
      - { id: e0, andThen: { use: count } }
      - id: e2
        andAll:
          - { id: e3, andThen: { use: never } }
          - [{ id: e4, andThen: { use: count } }, { id: e5, bail: { if: "true", result: { early: "{{ data }}" } } }]
      - { id: e6, andThen: { use: breaks } }
  whole:
    steps: [{ id: w1, andThen: { use: count } }, { id: w2, andThen: { use: breaks } }]
    onError: [{ id: w3, andThen: { use: wants } }, { id: w4, andThen: { use: count, with: { key: w } } }]
`;

/** Steps of which no try may follow once it is on record that they have failed. */
const FINAL = ["pay", "a2", "last", "whole/w2"];

const STORES: Record<string, (t: TestContext) => Promise<() => () => Promise<Store>>> = {
  "the engine in memory": async () => () => {
    const store = createMemoryStore();
    return async () => store;
  },
  SQLite: async (t) => {
    const folder = await temporaryFolder(t);
    let count = 0;
    let open: Store | null = null;
    t.after(() => open?.close());
    return () => {
      const file = join(folder, `${count++}.db`);
      return async () => {
        await open?.close();
        open = await openSqliteStore({ file, where: file, synchronous: "normal", logger: silent });
        return open;
      };
    };
  },
};

for (const [name, storesOf] of Object.entries(STORES)) {
  describe(`an execution with onError and bail whose process dies, on ${name}`, () => {
    test("goes on after every single commit to the same result", async (t) => {
      const start = await processesOf(t, MANIFEST, { plugins: PLUGINS });
      const fresh = await storesOf(t);
      const whole = await survive(start, fresh(), [], { final: FINAL });
      const { at, count, steps } = whole.result as { at: string; count: number; steps: Record<string, object> };
      assert.deepEqual([whole.status, at, count], ["completed", "last", 8]);
      assert.deepEqual(steps.pay, { n: 1, code: "broken", at: "pay" });
      assert.deepEqual(steps.both, { both: "a2", n: 2, before: 2 });
      assert.deepEqual(Object.keys(steps.early!), ["early"]);
      checkEvents(whole.events);
      const total = whole.commits.length;
      assert.ok(total > 20, `${total} commits are few for so many steps`);
      t.diagnostic(`${total} commits`);
      // On SQLite, where a process takes longest to start, every third one unless at length.
      const by = name === "SQLite" && !LONG ? 3 : 1;
      for (let cut = by === 1 ? 0 : Date.now() % by; cut < total; cut += by) {
        for (const acknowledged of LONG ? [true, false] : [cut % 2 === 0]) {
          const { status, result, events } = await survive(start, fresh(), [cut], { acknowledged, final: FINAL });
          assert.deepEqual({ status, result }, { status: whole.status, result: whole.result }, `after ${cut} commits`);
          checkEvents(events);
        }
      }
    });
  });
}

test("an execution with onError and bail is suspended at any moment, and its process dies again and again, to the same result", async (t) => {
  const start = await processesOf(t, MANIFEST, { plugins: PLUGINS });
  const fresh = await STORES["the engine in memory"]!(t);
  const whole = await survive(start, fresh(), []);
  const seed = Date.now() % 1_000_000_007;
  const random = createRandom(seed);
  for (const step of LONG ? [1, 2, 3] : [1, 3]) {
    const cuts = Array.from({ length: 27 / step }, () => step);
    const disturb = suspends(random);
    const { status, result, events } = await survive(start, fresh(), cuts, { disturb, final: FINAL });
    const told = `every ${step} commits, seed ${seed}`;
    assert.deepEqual({ status, result }, { status: whole.status, result: whole.result }, told);
    checkEvents(events);
  }
});
