/** Executions with very many steps: what they cost grows with their size only, and the event loop has its turns meanwhile. */
import assert from "node:assert/strict";
import { describe, type TestContext, test } from "node:test";
import { createMemoryStore } from "../../../core/storage/memory-store.ts";
import type { Range, Store } from "../../../core/storage/store.ts";
import { CALL, processesOf } from "../../support/workflow-process.ts";

/** Gives an object of a hundred members, or what it holds on to until it is let go. */
const MEMBERS = `export default { kind: "step", config: { type: "object", properties: { as: { type: "string" } } },
  execute: ({ config }) => Object.fromEntries(Array.from({ length: 100 }, (_, at) => [config.as + at, at])) };`;
const QUICK = `export default { kind: "step", execute: () => 1 };`;
const HELD = `export default { kind: "step", execute: ({ signal }) =>
  new Promise((resolve, reject) => signal.addEventListener("abort", () => reject(signal.reason))) };`;
const PLUGINS = { "steps/members.mjs": MEMBERS, "steps/quick.mjs": QUICK, "steps/held.mjs": HELD };

/** A store that records as one on disk does, and counts the rows of journals that are read. */
function recordingStore(): Store & { journalRowsRead: number } {
  const store = createMemoryStore();
  const recording = {
    ...store,
    kind: "sqlite" as const,
    journalRowsRead: 0,
    async scan(range: Range) {
      const rows = await store.scan(range);
      if (/^x\/.*\/j\/$/.test(range.prefix)) recording.journalRowsRead += rows.length;
      return rows;
    },
  };
  return recording;
}

async function started(t: TestContext, workflows: object) {
  const start = await processesOf(t, { workflows }, { plugins: PLUGINS });
  const store = recordingStore();
  return { store, ...(await start(store)) };
}

const many = (count: number, step: (id: string) => object) =>
  Array.from({ length: count }, (_, at) => ({ id: `b${at}`, ...step(`b${at}`) }));
const set = (id: string) => ({ andThen: { set: { [id]: "{{ input }}" } } });

test("the outputs of four times as many branches of andAll are merged in about four times the work", async (t) => {
  const members = (id: string) => ({ andThen: { use: "members", with: { as: `${id}_` } } });
  const wide = (count: number) => ({ steps: [{ id: "s", andAll: many(count, members) }] });
  const { access } = await started(t, { few: wide(100), more: wide(400) });
  const work = async (workflow: string) => {
    const before = process.cpuUsage();
    await access.execute(workflow, { input: 1 }, CALL);
    return process.cpuUsage(before).user;
  };
  const best = { few: Number.POSITIVE_INFINITY, more: Number.POSITIVE_INFINITY };
  // Others run on this machine too: its best, until that settles the matter.
  for (let round = 0; round < 12 && !(best.more < 9 * best.few); round++) {
    for (const workflow of ["few", "more"] as const) best[workflow] = Math.min(best[workflow], await work(workflow));
  }
  assert.ok(best.more < 9 * best.few, JSON.stringify(best));
});

test("the outputs of andAll are merged with the last of members that have the same name, and with any name", async (t) => {
  const branches = [
    { id: "a", andThen: { set: { x: 1, y: 1 } } },
    { id: "b", andThen: { set: "{{ input }}" } },
    { id: "c", andThen: { set: 7 } },
  ];
  const { access } = await started(t, { w: { steps: [{ id: "s", andAll: branches }] } });
  const input: unknown = JSON.parse('{"x": 2, "__proto__": 3}');
  const { json } = await access.execute("w", { input }, CALL);
  const { result } = JSON.parse(json) as { result: object };
  assert.deepEqual(Object.entries(result), Object.entries(JSON.parse('{"x": 2, "y": 1, "__proto__": 3, "c": 7}')));
});

describe("others have their turn of the event loop", () => {
  /** More than two entries of a slice, less than a quarter of what is done here. */
  const MOST_ENTRIES = 400;
  const shapes = {
    "while the branches of andAll begin": [{ id: "s", andAll: many(1000, set) }],
    "while steps follow one another that do not wait for anything": many(1000, set),
  };
  for (const [when, steps] of Object.entries(shapes)) {
    test(when, async (t) => {
      const { access, opened } = await started(t, { w: { steps } });
      let most = 0;
      let last = 0;
      let turn: NodeJS.Immediate;
      const look = () => {
        const now = opened.engine.live.get("one")?.state.sequence ?? last;
        most = Math.max(most, now - last);
        last = now;
        turn = setImmediate(look);
      };
      look();
      await access.execute("w", { input: 1, options: { executionId: "one" } }, CALL);
      clearImmediate(turn!);
      assert.ok(last > 0 && most <= MOST_ENTRIES, `${most} events in one turn`);
    });
  }
});

test("a reader from the start of a long execution that runs reads each row of its journal once", async (t) => {
  const count = 1500;
  const quick = () => ({ andThen: { use: "quick" } });
  const steps = [...many(count, quick), { id: "held", andThen: { use: "held" } }];
  const { access, opened, store } = await started(t, { w: { steps } });
  access.execute("w", { input: 1, options: { executionId: "one" } }, CALL).catch(() => {});
  const execution = async () => {
    for (;;) {
      const live = opened.engine.live.get("one");
      if (live?.state.steps.has("held") && live.unwritten === 0) return live;
      await new Promise(setImmediate);
    }
  };
  const { state, log } = await execution();
  assert.ok(log.from > 0, "its first entries are not in memory any more");
  const ids: number[] = [];
  let leave = () => {};
  const sink = {
    closed: false,
    open() {},
    send(_json: string, id = 0) {
      ids.push(id);
      if (id !== state.sequence) return undefined;
      sink.closed = true;
      leave();
      return undefined;
    },
    onLeave(listener: () => void) {
      leave = listener;
    },
  };
  await (await access.attach("w", "one", 0))(sink);
  assert.deepEqual(
    ids,
    Array.from({ length: state.sequence }, (_, at) => at + 1),
  );
  assert.ok(store.journalRowsRead <= count + 1, `${store.journalRowsRead} rows`);
  await access.cancel("w", "one", undefined);
});
