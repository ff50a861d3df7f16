/**
 * Workflows made at random come to what a plain evaluation says: run through, suspended at any moment, and taken up from any
 * point of their journal. The journals that they leave fold to what was seen while they ran.
 */
import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { openExecutionKey } from "../../../core/storage/keys.ts";
import { createMemoryStore } from "../../../core/storage/memory-store.ts";
import type { Store } from "../../../core/storage/store.ts";
import type { WorkflowDefinition } from "../../../core/workflows/definition/definition.ts";
import {
  EVENT_COUNTS,
  type ExecutionStart,
  type ExecutionStatus,
  type JournalEntry,
  openRowText,
} from "../../../core/workflows/journal/entries.ts";
import { loadExecution, readExecution } from "../../../core/workflows/journal/load.ts";
import {
  applyEntry,
  initialState,
  type JournalState,
  stateFromJournal,
} from "../../../core/workflows/journal/state.ts";
import { drive } from "../../../core/workflows/run/drive.ts";
import type { ExecutionEnvironment } from "../../../core/workflows/run/environment.ts";
import { Execution } from "../../../core/workflows/run/execution.ts";
import { planReplay, planResume } from "../../../core/workflows/run/replay.ts";
import { silent } from "../../support/agents.ts";
import { type Expected, evaluate, type Node, workflow } from "../../support/generated-nodes.ts";
import { definitionOf } from "../../support/generated-workflows.ts";

const RUNS = 150;
const INPUT = { in: 3 };
const CALLER = { requestId: "r", logger: silent };

const around = (store: Store): ExecutionEnvironment => ({
  store,
  process: "p",
  shared: false,
  volatile: false,
  maxBytes: 2 ** 26,
  lease: null,
});

const startOf = (change: Partial<ExecutionStart> = {}): ExecutionStart => ({
  id: "e1",
  number: 7,
  workflowId: "w",
  workflowName: "W",
  definition: "hash",
  at: Date.now(),
  input: INPUT,
  context: {},
  state: {},
  ...change,
});

/** Resumes until it ends. `disturb` is called whenever it begins to run. */
async function finish(
  execution: Execution,
  definition: WorkflowDefinition,
  store: Store,
  disturb: (execution: Execution) => void = () => {},
): Promise<{ state: JournalState; entries: readonly JournalEntry[] }> {
  let running = execution;
  for (let rounds = 0; ; rounds++) {
    assert.ok(rounds < 500, "it never ends");
    disturb(running);
    await drive(running);
    const found = await readExecution(store, running.state.start.number);
    assert.equal(found!.openRow, null);
    const loaded = (await loadExecution(store, found!))!;
    // What was told while it ran is what was recorded.
    assert.deepEqual(loaded.state, running.state);
    if (loaded.state.status !== "suspended") return { state: loaded.state, entries: loaded.entries };
    const { stepId } = loaded.state.suspension!;
    const waits = loaded.state.steps.get(stepId)?.status === "waiting";
    const entry = planResume(loaded.state, definition, waits ? { resumeData: { [`answer ${stepId}`]: 1 } } : {});
    running = new Execution(loaded.state, definition, CALLER, around(store), { loaded, found: found! });
    running.append(entry);
  }
}

async function runThrough(list: readonly Node[], disturb?: (execution: Execution) => void, start = startOf()) {
  const definition = definitionOf(list, new Map());
  const store = createMemoryStore();
  const execution = new Execution(initialState(start), definition, CALLER, around(store), null);
  return { definition, ...(await finish(execution, definition, store, disturb)) };
}

function isAsExpected({ output, error, state, status }: JournalState, expected: Expected): void {
  assert.equal(status, expected.error === null ? "completed" : "error");
  assert.equal(error?.stepId ?? null, expected.error);
  if (expected.result !== null) assert.deepEqual(output, expected.result);
  assert.deepEqual(state, expected.state);
}

test("run through, they give what a plain evaluation gives", async () => {
  await fc.assert(
    fc.asyncProperty(workflow, async (list) => {
      const { state } = await runThrough(list);
      isAsExpected(state, evaluate(list, INPUT));
    }),
    { numRuns: RUNS },
  );
});

/** Turns of the event loop after which a stop comes, each time that the execution begins to run. */
const moments = fc.array(fc.integer({ min: 0, max: 12 }), { maxLength: 6 });

function stopsAt(turns: readonly number[], kind: "suspend" | "cancel" = "suspend"): (execution: Execution) => void {
  const left = [...turns];
  return (execution) => {
    let wait = left.shift();
    if (wait === undefined) return;
    const turn = () => {
      if (wait === 0) execution.stop({ kind, reason: "outside", gracePeriod: Number.POSITIVE_INFINITY });
      else setImmediate(turn);
      wait!--;
    };
    turn();
  };
}

test("suspended from outside at any moment, again and again, they give the same", async () => {
  await fc.assert(
    fc.asyncProperty(workflow, moments, async (list, turns) => {
      const { state } = await runThrough(list, stopsAt(turns));
      isAsExpected(state, evaluate(list, INPUT));
    }),
    { numRuns: RUNS },
  );
});

test("cancelled at any moment, they are cancelled or had ended; nothing is recorded after the end", async () => {
  await fc.assert(
    fc.asyncProperty(workflow, fc.integer({ min: 0, max: 12 }), async (list, turns) => {
      const { state, entries } = await runThrough(list, stopsAt([turns], "cancel"));
      if (state.status !== "cancelled") return isAsExpected(state, evaluate(list, INPUT));
      assert.equal(entries.at(-1)![0], "cancel");
      assert.deepEqual([state.error, state.suspension, state.cancellation?.reason], [null, null, "outside"]);
    }),
    { numRuns: RUNS },
  );
});

test("taken up from any point of the journal, they give the same", async () => {
  await fc.assert(
    fc.asyncProperty(workflow, moments, fc.double({ min: 0, max: 1, noNaN: true }), async (list, turns, point) => {
      const { entries } = await runThrough(list, stopsAt(turns));
      const start = startOf();
      const kept = entries.slice(0, Math.floor(point * entries.length));
      if (stateFromJournal(start, kept).status !== "running") return;
      const store = createMemoryStore();
      const key = openExecutionKey(start.number);
      const texts = kept.map((entry) => JSON.stringify(entry));
      await store.commit({ put: [[key, openRowText("gone", JSON.stringify(start), texts)]] });
      const found = (await readExecution(store, start.number))!;
      const loaded = (await loadExecution(store, found))!;
      const definition = definitionOf(list, new Map());
      const execution = new Execution(loaded.state, definition, CALLER, around(store), { loaded, found });
      const { state } = await finish(execution, definition, store, stopsAt(turns));
      isAsExpected(state, evaluate(list, INPUT));
      assert.ok(state.sequence >= stateFromJournal(start, kept).sequence);
    }),
    { numRuns: RUNS },
  );
});

/** The fifth step on record is what handles the failure; the shared state is that of a step which had failed with it. */
const HANDLED_IN_RACE: Node[] = [
  {
    kind: "race",
    winner: [
      {
        kind: "guard",
        of: "all",
        steps: [{ kind: "tap", fails: false }],
        turns: 0,
        handler: [{ kind: "set", add: 0 }],
      },
    ],
    losers: 0,
    first: false,
  },
];

test("replayed from any step that is on record, they give the same", async () => {
  await fc.assert(
    fc.asyncProperty(workflow, moments, fc.nat(), async (list, turns, choice) => {
      const source = await runThrough(list, stopsAt(turns));
      const expected = evaluate(list, INPUT);
      const paths = [...source.state.steps.keys()];
      const stepId = paths[choice % paths.length]!;
      const { replay, state } = planReplay(source.state, source.entries, source.definition.outline, { stepId });
      const start = JSON.parse(JSON.stringify(startOf({ id: "e2", number: 8, replay, state }))) as ExecutionStart;
      const replayed = await runThrough(list, stopsAt(turns), start);
      isAsExpected(replayed.state, expected);
    }),
    { numRuns: RUNS, examples: [[HANDLED_IN_RACE, [], 4]] },
  );
});

const NEXT: Readonly<Record<ExecutionStatus, readonly ExecutionStatus[]>> = {
  running: ["running", "suspended", "completed", "error", "cancelled"],
  suspended: ["running", "cancelled"],
  completed: [],
  error: [],
  cancelled: [],
};

test("their journals fold the same in one go and in two, number their events without a gap, and change status legally", async () => {
  await fc.assert(
    fc.asyncProperty(workflow, moments, fc.nat(), async (list, turns, cut) => {
      const { entries, state } = await runThrough(list, stopsAt(turns));
      const start = state.start;
      const whole = stateFromJournal(start, entries);
      const at = cut % (entries.length + 1);
      const split = stateFromJournal(start, JSON.parse(JSON.stringify(entries.slice(0, at))) as JournalEntry[]);
      for (const entry of entries.slice(at)) applyEntry(split, entry);
      assert.deepEqual(split, whole);
      const step = initialState(start);
      for (const entry of entries) {
        const before = {
          status: step.status,
          sequence: step.sequence,
          state: step.state,
          values: new Map(step.values),
        };
        applyEntry(step, entry);
        assert.equal(step.sequence, before.sequence + EVENT_COUNTS[entry[0]]);
        assert.ok(NEXT[before.status].includes(step.status), `${before.status} -> ${step.status}`);
        for (const [source, value] of before.values) {
          const again = entry[0] === "done" && entry[1] === source;
          if (!again) assert.equal(step.values.get(source), value);
        }
      }
    }),
    { numRuns: RUNS },
  );
});
