/** The judge of the chaos finds what must not happen, and nothing else. */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Deeds } from "./cluster.ts";
import { judgeRuns as judge } from "./effects.ts";

const run = (key: string, pid: number, begin: number, end = Number.POSITIVE_INFINITY) => ({
  key,
  execution: key.slice(0, key.lastIndexOf(":")),
  pid,
  begin,
  end,
});
const deeds = (rest: Partial<Deeds> = {}): Deeds => ({
  kills: new Map(),
  failedBoots: new Set(),
  freezes: [],
  outages: [],
  failovers: [],
  ...rest,
});
const judgeRuns = (runs: Parameters<typeof judge>[0], done: Deeds, told: ReadonlyMap<string, number>, moves = true) =>
  judge(runs, done, told, () => moves);
const NOTHING = new Map<string, number>();

test("the judge of the chaos: two processes at one execution are found, at one step or at two", () => {
  assert.equal(judgeRuns([run("e:a", 1, 10, 30), run("e:a", 2, 20, 40)], deeds(), NOTHING).length, 1);
  assert.equal(judgeRuns([run("e:a", 1, 10, 30), run("e:b", 2, 20, 40)], deeds(), NOTHING).length, 1);
  assert.equal(judgeRuns([run("e:a", 1, 10), run("e:a", 2, 20, 40)], deeds(), NOTHING).length, 1);
  assert.equal(judgeRuns([run("e:a", 1, 10, 30), run("e:a", 1, 20, 40)], deeds(), NOTHING).length, 1);
});

test("the judge of the chaos: a step that was told to be complete and runs again is found", () => {
  const told = new Map([["e:a", 50]]);
  assert.equal(judgeRuns([run("e:a", 1, 10, 30), run("e:a", 2, 60, 70)], deeds(), told).length, 1);
  assert.deepEqual(judgeRuns([run("e:a", 1, 10, 30)], deeds(), told), []);
});

test("the judge of the chaos: a run after a kill, one after the other, branches, and a take-over of a frozen process are well", () => {
  const kills = new Map([[1, 15]]);
  assert.deepEqual(judgeRuns([run("e:a", 1, 10), run("e:a", 2, 20, 40)], deeds({ kills }), NOTHING), []);
  assert.deepEqual(judgeRuns([run("e:a", 1, 10, 20), run("e:b", 2, 20, 40)], deeds(), NOTHING), []);
  assert.deepEqual(judgeRuns([run("e:a", 1, 10, 30), run("e:b", 1, 20, 40)], deeds(), NOTHING), []);
  const freezes = [{ pid: 1, from: 12, to: 90 }];
  assert.deepEqual(judgeRuns([run("e:a", 1, 10, 95), run("e:a", 2, 60, 100)], deeds({ freezes }), NOTHING), []);
  // When it goes on it may begin nothing more.
  const back = [run("e:a", 1, 10, 95), run("e:a", 2, 60, 100), run("e:b", 1, 96, 99)];
  assert.equal(judgeRuns(back, deeds({ freezes }), NOTHING).length, 1);
});

test("the judge of the chaos: an execution that goes from a living process to another one is found", () => {
  const runs = [run("e:a", 1, 10, 20), run("e:b", 2, 8_000, 8_040)];
  assert.equal(judgeRuns(runs, deeds(), NOTHING, false).length, 1);
  assert.deepEqual(judgeRuns(runs, deeds(), NOTHING, true), []);
  assert.deepEqual(judgeRuns(runs, deeds({ kills: new Map([[1, 30]]) }), NOTHING, false), []);
  assert.deepEqual(judgeRuns(runs, deeds({ freezes: [{ pid: 1, from: 15, to: 9_000 }] }), NOTHING, false), []);
  assert.equal(judgeRuns(runs, deeds({ freezes: [{ pid: 1, from: 15, to: 900 }] }), NOTHING, false).length, 1);
});

test("the judge of the chaos: what a process had taken up that ended while it booted goes on elsewhere, and not beside it", () => {
  const failedBoots = new Set([1]);
  const next = [run("e:a", 1, 10, 20), run("e:a", 2, 1_000, 1_040)];
  assert.equal(judgeRuns(next, deeds(), NOTHING, false).length, 1);
  assert.deepEqual(judgeRuns(next, deeds({ failedBoots }), NOTHING, false), []);
  // It was cut off in the middle, at a moment that nobody knows.
  assert.deepEqual(judgeRuns([run("e:a", 1, 10), run("e:a", 2, 20, 40)], deeds({ failedBoots }), NOTHING, false), []);
  assert.equal(
    judgeRuns([run("e:a", 1, 10, 30), run("e:a", 2, 20, 40)], deeds({ failedBoots }), NOTHING, false).length,
    1,
  );
});
