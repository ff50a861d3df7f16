/** Branches that end because the execution cannot go on, and branches that lose: nothing of them is recorded afterwards. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, type TestContext, test } from "node:test";
import { CommitConflict, type ServiceError } from "../../../core/lib/errors.ts";
import { createMemoryStore } from "../../../core/storage/memory-store.ts";
import type { Commit, Store } from "../../../core/storage/store.ts";
import type { Step } from "../../../core/workflows/definition/definition.ts";
import type { JournalEntry } from "../../../core/workflows/journal/entries.ts";
import { findExecution, loadExecution } from "../../../core/workflows/journal/load.ts";
import { stepsByPath } from "../../support/definitions.ts";
import { watchProbe } from "../../support/probe.ts";
import { CALL, processesOf, refusal } from "../../support/workflow-process.ts";

const PROBE = readFileSync("test/fixtures/plugins/steps/probe.mjs", "utf8");
/** Takes as many turns of the microtask queue as the input says, once all that were begun together have begun. */
const HOPS = `const groups = new Map();
export default {
  kind: "step",
  config: { type: "object", properties: { as: { type: "string" }, fails: { type: "boolean" } } },
  async execute({ data, config, executionId, signal }) {
    const group = groups.get(executionId) ?? { left: data.together };
    groups.set(executionId, group);
    group.started ??= new Promise((resolve) => { group.start = resolve; });
    if (--group.left === 0) group.start();
    await group.started;
    if (config.as === "never") return new Promise((resolve) => signal.addEventListener("abort", resolve));
    for (let left = data[config.as]; left > 0; left--) await null;
    if (config.fails) throw new Error("lost");
    return { [config.as]: 1 };
  },
};`;
const PLUGINS = { "steps/probe.mjs": PROBE, "steps/hops.mjs": HOPS };

const probe = (id: string, config: object = {}) => ({ id, andThen: { use: "probe", with: config } });
const hops = (id: string, as: string, fails = false) => ({ id, andThen: { use: "hops", with: { as, fails } } });
const turn = () => new Promise((resolve) => setImmediate(resolve));

/** A store that records as one on disk does, and whose commits fail from the time when `broken` is true. */
function recordingStore() {
  const store = createMemoryStore();
  const state = { broken: false, commits: 0 };
  const recording: Store = {
    ...store,
    kind: "sqlite",
    async commit(commit: Commit) {
      state.commits++;
      if (state.broken) throw new CommitConflict(["x"]);
      return store.commit(commit);
    },
  };
  return { store: recording, state };
}

async function entriesOf(store: Store, id: string): Promise<readonly JournalEntry[]> {
  const found = await findExecution(store, id);
  assert.ok(found !== null);
  return (await loadExecution(store, found))!.entries;
}

const HELD = { hold: true };
const DEAF = { hold: true, heeds: false };
/** In each, `a` leads to the end of the execution while `b` and `c` work. */
const SHAPES: Record<string, object> = {
  "in a branch of andAll": {
    andAll: [[probe("a", HELD), probe("a2")], [probe("b", DEAF), probe("b2")], probe("c", HELD)],
  },
  "in a branch of andRace": {
    andRace: [[probe("a", HELD), probe("a2")], [probe("b", DEAF), probe("b2")], probe("c", HELD)],
  },
  "in branches in branches": {
    andAll: [
      { id: "inner", andRace: [[probe("a", HELD), probe("a2")], probe("c", HELD)] },
      [probe("b", DEAF), probe("b2")],
    ],
  },
};

async function begun(t: TestContext, shape: object) {
  const watched = watchProbe(t);
  const { store, state } = recordingStore();
  const start = await processesOf(t, { workflows: { w: { steps: [{ id: "s", ...shape }] } } }, { plugins: PLUGINS });
  const { opened, access } = await start(store);
  const steps = stepsByPath(opened.engine.definitions.current("w")!.steps);
  const reply = refusal(access.execute("w", { input: {}, options: { executionId: "one" } }, CALL));
  const [a, b, c] = [await watched.next("a"), await watched.next("b"), await watched.next("c")];
  const execution = opened.engine.live.get("one")!;
  return { watched, store, state, opened, access, steps, reply, a: a!, b: b!, c: c!, execution };
}

describe("a branch that ends with a fault of ours", () => {
  for (const [where, shape] of Object.entries(SHAPES)) {
    test(`${where}: the others are stopped, and record nothing after the end`, async (t) => {
      const { watched, store, access, steps, reply, a, b, c, execution } = await begun(t, shape);
      const faulty = steps.get("a2") as Step & { inputCheck: unknown };
      faulty.inputCheck = () => {
        throw new RangeError("a fault");
      };
      a.release({});
      const { kind } = (await reply) as ServiceError;
      assert.ok(kind === "step_failed" || kind === "internal", kind);
      assert.ok(b.aborted instanceof Error && c.aborted instanceof Error);
      assert.equal((await access.state("w", "one")).status, "error");
      const before = await entriesOf(store, "one");
      assert.deepEqual([before.at(-1)?.[0], before.at(-1)?.[3]], ["error", "internal error"]);
      b.release({ late: true });
      for (let n = 0; n < 5; n++) await turn();
      assert.deepEqual(await entriesOf(store, "one"), before);
      assert.deepEqual(execution.log.entries.at(-1), before.at(-1));
      assert.ok(!watched.paths().includes("b2"));
    });
  }
});

describe("a branch whose commit is lost", () => {
  for (const [where, shape] of Object.entries(SHAPES)) {
    test(`${where}: the others are stopped, and try to record nothing more`, async (t) => {
      const { watched, state, opened, reply, a, b, c, execution } = await begun(t, shape);
      state.broken = true;
      a.release({});
      await reply;
      assert.ok(b.aborted instanceof Error && c.aborted instanceof Error);
      assert.equal(opened.engine.live.size, 0);
      const [commits, entries] = [state.commits, [...execution.log.entries]];
      b.release({ late: true });
      for (let n = 0; n < 5; n++) await turn();
      assert.deepEqual([state.commits, execution.log.entries], [commits, entries]);
      assert.ok(!watched.paths().includes("b2"));
    });
  }
  test("with the last step of a branch, while the others work for long", async (t) => {
    const { state, opened, reply, a, b, c } = await begun(t, {
      andAll: [probe("a", HELD), probe("b", DEAF), probe("c", HELD)],
    });
    state.broken = true;
    a.release({});
    await reply;
    assert.ok(b.aborted instanceof Error && c.aborted instanceof Error);
    assert.equal(opened.engine.live.size, 0);
  });
});

/** Branches that end at about the same time as the winner `w`. */
const LOSERS: Record<string, object> = {
  "andAll in andAll": { id: "l", andAll: [{ id: "l1", andAll: [hops("x", "x")] }, hops("y", "never")] },
  "a whole andAll": { id: "l", andAll: [{ id: "l1", andAll: [hops("x", "x")] }, hops("y", "x")] },
  "andRace in andAll": { id: "l", andAll: [{ id: "l1", andRace: [hops("x", "x"), hops("y", "never")] }] },
  "andRace in andRace": { id: "l", andRace: [{ id: "l1", andRace: [hops("x", "x")] }, hops("y", "never")] },
  "andWhen and andAll": {
    id: "l",
    andWhen: { if: "true", then: [{ id: "l1", andAll: [hops("x", "x"), hops("y", "x")] }] },
  },
  "andWhen that fails": { id: "l", andWhen: { if: "true", then: [hops("x", "x", true)] } },
  "andAll that is tried again": {
    id: "l",
    retry: { attempts: 1, delay: "0ms" },
    andAll: [{ id: "l1", andWhen: { if: "true", then: hops("x", "x", true) } }],
  },
  andWorkflow: { id: "l", andWorkflow: { workflow: "inner", input: "{{ data }}" } },
  "andWorkflow that fails": { id: "l", andWorkflow: { workflow: "failing", input: "{{ data }}" } },
};
/** More turns than anything here takes. */
const MOST = 18;

describe("no entry of a loser follows the one of its race", () => {
  for (const [what, loser] of Object.entries(LOSERS)) {
    for (const order of ["first", "last"]) {
      test(`${what}, ${order}`, async (t) => {
        const branches = [loser, { id: "win", andAll: [hops("w", "w")] }];
        const race = { id: "race", andRace: order === "first" ? branches : branches.reverse() };
        const workflows = {
          w: { steps: [race, probe("on", { takes: 1 })] },
          inner: { steps: [hops("x", "x")] },
          failing: { steps: [hops("x", "x", true)] },
        };
        const start = await processesOf(t, { workflows }, { plugins: PLUGINS });
        const { store } = recordingStore();
        const { access } = await start(store);
        const together = JSON.stringify(loser).includes('"y"') ? 3 : 2;
        for (let x = 0; x < MOST; x++) {
          for (let w = 0; w < MOST; w += 3) {
            const id = `x${x}w${w}`;
            await access.execute("w", { input: { together, x, w }, options: { executionId: id } }, CALL);
            const entries = await entriesOf(store, id);
            const decided = entries.findIndex(([kind, path]) => kind === "same" && path === "race");
            assert.ok(decided > 0);
            const [, , , source] = entries[decided]!;
            // Whichever has won.
            const late = entries.slice(decided + 1).filter(([, path]) => path !== "on" && path !== "");
            assert.deepEqual(late, [], `${id}, won by ${source}`);
          }
        }
      });
    }
  }
});
