/**
 * A process that dies after every single commit of an execution with steps of all types: another one goes on from the journal to
 * the same result, and what is on record is not done again. Everything is real but the moment of death, which the store chooses.
 */
import assert from "node:assert/strict";
import { join } from "node:path";
import { describe, type TestContext, test } from "node:test";
import { createMemoryStore } from "../../core/storage/memory-store.ts";
import { openSqliteStore } from "../../core/storage/sqlite-store.ts";
import type { Store } from "../../core/storage/store.ts";
import { silent } from "../support/agents.ts";
import { LONG } from "../support/at-length.ts";
import { temporaryFolder } from "../support/storage.ts";
import { checkEvents, SURVIVAL_PLUGINS, survive } from "../support/survival.ts";
import { processesOf } from "../support/workflow-process.ts";

const MANIFEST = `
name: Test
version: 1.0.0
providers: { demo: { use: scripted } }
tools: { add: { use: add } }
agents:
  writer: { name: Writer, description: Writes, instructions: Write., model: demo/echo, memory: false }
workflows:
  everything:
    recoveries: 100 # some of its processes die before they have recorded anything
    steps:
      - { id: one, andThen: { use: count } }
      - { id: shape, andThen: { set: { n: "{{ data.n + 1 }}", who: "{{ input.who }}" } } }
      - { id: flaky, retry: { attempts: 2, delay: 1ms }, andThen: { use: flaky } }
      - id: gate
        andWhen: { if: data.n > 1, then: [{ id: ask, andThen: { suspend: { reason: Yes?, data: { n: "{{ data.n }}" } } } }, { id: asked, andThen: { use: count } }] }
      - id: both
        andAll:
          - [{ id: a1, andThen: { use: count } }, { id: a2, andThen: { use: count, with: { key: a } } }]
          - { id: b, andThen: { use: wants } }
          - { id: c, andThen: { set: { c: 3 } } }
      - { id: quick, andRace: [{ id: fast, andThen: { use: count, with: { key: fast } } }, { id: slow, andThen: { use: slow, with: { milliseconds: 60000 } } }] }
      - { id: watch, andTap: { use: count } }
      - { id: letter, andAgent: { agent: writer, prompt: "To {{ input.who }}", stream: true } }
      - { id: sub, andWorkflow: { workflow: inner, input: "{{ steps.quick }}" } }
      - { id: sum, andThen: { tool: add, input: { a: "{{ data.n }}", b: 1 } } }
      - { id: last, andThen: { set: { sum: "{{ data.sum }}", all: "{{ steps }}", count: "{{ state.count }}" } } }
  inner:
    steps:
      - { id: m1, andThen: { use: count } }
      - { id: m2, andThen: { use: wants } }
      - { id: m3, andThen: { use: count } }
`;

const STORES: Record<string, (t: TestContext) => Promise<() => Promise<() => Promise<Store>>>> = {
  /** Rows in the heap outlive the processes here. */
  "the engine in memory": async () => async () => {
    const store = createMemoryStore();
    return async () => store;
  },
  /** Closed and opened for every process. */
  SQLite: async (t) => {
    const folder = await temporaryFolder(t);
    let count = 0;
    let open: Store | null = null;
    t.after(() => open?.close());
    return async () => {
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
  describe(`an execution whose process dies, on ${name}`, () => {
    test("goes on after every single commit, to the same result, and nothing on record is done again", async (t) => {
      const start = await processesOf(t, MANIFEST, { plugins: SURVIVAL_PLUGINS });
      const fresh = await storesOf(t);
      const whole = await survive(start, await fresh(), []);
      assert.equal(whole.status, "completed");
      const { count } = whole.result as { count: number };
      assert.equal(count, 8, "every step that counts has counted once");
      checkEvents(whole.events);
      const total = whole.commits.length;
      assert.ok(total > 25, `${total} commits are few for so many steps`);
      t.diagnostic(`${total} commits`);
      for (let cut = 0; cut < total; cut++) {
        // Both in turn on SQLite, where a process takes longest to start; both each time at length.
        const both = LONG || name !== "SQLite" ? [true, false] : [cut % 2 === 0];
        for (const acknowledged of both) {
          const { status, result, events } = await survive(start, await fresh(), [cut], { acknowledged });
          assert.deepEqual({ status, result }, { status: whole.status, result: whole.result }, `after ${cut} commits`);
          checkEvents(events);
        }
      }
    });

    test("goes on after deaths one soon after the other", async (t) => {
      const start = await processesOf(t, MANIFEST, { plugins: SURVIVAL_PLUGINS });
      const fresh = await storesOf(t);
      const whole = await survive(start, await fresh(), []);
      for (const step of [1, 2, 3]) {
        const cuts = Array.from({ length: 40 / step }, () => step);
        const { status, result, events } = await survive(start, await fresh(), cuts);
        assert.deepEqual({ status, result }, { status: whole.status, result: whole.result }, `every ${step} commits`);
        checkEvents(events);
      }
    });
  });
}
