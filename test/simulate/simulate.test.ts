/**
 * Whole services in one process, over a simulated database, with crashes, cuts and clients by a seed: the trace of a seed is always the
 * same, and what must be true is true. `npm run simulate -- --seed N` shows one, `npm run simulate:guards` what they would find.
 */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { patched } from "../model/built.ts";
import { buildService } from "./build.ts";
import { GUARDS } from "./guards.ts";
import { type Action, type Case, planOf } from "./plan.ts";
import { simulate } from "./simulation.ts";

const SEEDS = 200;
/** Seeds of one test: a busy machine takes seconds for one. */
const TOGETHER = 25;
const STEPS = 20;

interface Found {
  readonly title: string;
  readonly seed: number;
  readonly actions: readonly Action[];
}

/** Simulations that went wrong once, as `npm run simulate` has shrunk them. */
const FOUND: readonly Found[] = [
  {
    title: "a kept run whose tool asks a person waits for a store that is away",
    seed: 10,
    actions: [
      {
        at: 835,
        kind: "network",
        network: { slow: 0, refused: 0.01, unanswered: 0.02, unheard: 0.5 },
        milliseconds: 15_000,
      },
      { at: 2_040, kind: "crash", service: 0, calls: 10, happens: true, rest: 100 },
      { at: 6_296, kind: "client", does: "once", number: 6 },
      { at: 2_377, kind: "client", does: "run", number: 7 },
    ],
  },
  {
    title: "a process that has lost an execution withdraws nothing that it has asked for it",
    seed: 1052,
    actions: [
      { at: 771, kind: "crash", service: 0, calls: 3, happens: false, rest: 12_000 },
      { at: 619, kind: "client", does: "once", number: 4 },
      { at: 2_756, kind: "client", does: "talk", number: 9 },
      { at: 492, kind: "client", does: "workflow", number: 10 },
      { at: 2_046, kind: "client", does: "workflow", number: 13 },
      { at: 2_966, kind: "client", does: "talk", number: 14 },
      { at: 699, kind: "client", does: "direct", number: 15 },
      { at: 9_141, kind: "freeze", service: 2, milliseconds: 15_000 },
    ],
  },
  {
    title: "a run whose cancel was committed unheard leaves no question open",
    seed: 214,
    actions: [
      { at: 637, kind: "client", does: "run", number: 2 },
      { at: 1_270, kind: "client", does: "run", number: 8 },
      { at: 1_126, kind: "freeze", service: 0, milliseconds: 4_000 },
      { at: 5_213, kind: "cut", service: 2, milliseconds: 15_000 },
      { at: 958, kind: "client", does: "run", number: 14 },
      { at: 3_223, kind: "crash", service: 1, calls: 9, happens: true, rest: 12_000 },
      { at: 2_552, kind: "client", does: "talk", number: 17 },
    ],
  },
  {
    title: "a process that is cut off does not say of a run what was so before others have taken it over",
    seed: 214,
    actions: [
      { at: 637, kind: "client", does: "run", number: 2 },
      { at: 1_126, kind: "freeze", service: 0, milliseconds: 4_000 },
      { at: 5_213, kind: "cut", service: 2, milliseconds: 15_000 },
      { at: 2_119, kind: "client", does: "run", number: 19 },
    ],
  },
  {
    title: "a task that has ended does not work again when a process goes on that had its run before",
    seed: 110_802,
    actions: [
      { at: 2_795, kind: "client", does: "task", number: 0 },
      { at: 7_404, kind: "client", does: "talk", number: 3 },
      { at: 7_710, kind: "client", does: "talk", number: 4 },
      { at: 2_829, kind: "client", does: "task", number: 10 },
      { at: 4_638, kind: "client", does: "talk", number: 12 },
      { at: 2_256, kind: "client", does: "workflow", number: 13 },
      { at: 792, kind: "client", does: "task", number: 14 },
      { at: 3_725, kind: "freeze", service: 0, milliseconds: 4_000 },
      { at: 7_636, kind: "client", does: "run", number: 19 },
    ],
  },
  {
    title: "a task whose run could not begin while answers of the store were lost begins soon",
    seed: 110_150,
    actions: [
      { at: 6_629, kind: "client", does: "task", number: 0 },
      { at: 5_845, kind: "client", does: "direct", number: 4 },
      {
        at: 5_011,
        kind: "network",
        network: { slow: 0, refused: 0.1, unanswered: 0.6, unheard: 0 },
        milliseconds: 15_000,
      },
    ],
  },
  {
    title: "a task follows its run soon whose end was committed unheard",
    seed: 110_361,
    actions: [
      {
        at: 3_041,
        kind: "network",
        network: { slow: 0, refused: 0.01, unanswered: 0.6, unheard: 0 },
        milliseconds: 15_000,
      },
      { at: 6_557, kind: "client", does: "workflow", number: 3 },
      { at: 9_933, kind: "client", does: "task", number: 19 },
    ],
  },
  {
    title: "a message of A2A that is sent again is told a task that stays, also where its run could not begin at first",
    seed: 110_001,
    actions: [
      { at: 4_408, kind: "client", does: "task", number: 0 },
      { at: 5_852, kind: "client", does: "task", number: 2 },
      { at: 2_694, kind: "freeze", service: 2, milliseconds: null },
      { at: 6_798, kind: "client", does: "task", number: 5 },
      { at: 7_629, kind: "client", does: "task", number: 7 },
      { at: 8_006, kind: "client", does: "task", number: 8 },
      { at: 6_913, kind: "client", does: "task", number: 10 },
      { at: 3_233, kind: "client", does: "task", number: 11 },
      { at: 3_669, kind: "client", does: "task", number: 13 },
      {
        at: 1_218,
        kind: "network",
        network: { slow: 0.6, refused: 0.3, unanswered: 0.2, unheard: 1 },
        milliseconds: 15_000,
      },
    ],
  },
  {
    title:
      "a call that was approved begins in the process that has its run, however long the store took for the approval",
    seed: 122_332,
    actions: [
      { at: 7_526, kind: "freeze", service: 0, milliseconds: null },
      { at: 1_045, kind: "reload", service: 2 },
      { at: 4_304, kind: "client", does: "run", number: 7 },
      { at: 658, kind: "client", does: "run", number: 8 },
      { at: 1_610, kind: "client", does: "run", number: 12 },
      { at: 3_968, kind: "cut", service: 1, milliseconds: 15_000 },
      { at: 3_718, kind: "client", does: "run", number: 15 },
      { at: 1_549, kind: "cut", service: 2, milliseconds: 4_000 },
    ],
  },
  {
    title: "an execution that another process takes up leaves no request to stop it behind",
    seed: 125_481,
    actions: [
      { at: 2_169, kind: "crash", service: 2, calls: 5, happens: true, rest: 2_000 },
      {
        at: 9_640,
        kind: "network",
        network: { slow: 0.6, refused: 0, unanswered: 0.6, unheard: 0 },
        milliseconds: 2_000,
      },
      { at: 8_273, kind: "stop", service: 0, rest: 100 },
      { at: 3_357, kind: "freeze", service: 1, milliseconds: null },
      { at: 1_758, kind: "client", does: "workflow", number: 17 },
    ],
  },
  {
    title: "a process that has given its lease back, and stood still, begins no run of a task",
    seed: 127_485,
    actions: [
      { at: 4_686, kind: "freeze", service: 2, milliseconds: null },
      { at: 2_228, kind: "client", does: "task", number: 2 },
      { at: 4_169, kind: "stop", service: 2, rest: 2_000 },
      { at: 4_604, kind: "client", does: "task", number: 6 },
      { at: 880, kind: "client", does: "task", number: 7 },
      { at: 6_159, kind: "client", does: "task", number: 13 },
    ],
  },
  {
    title: "a process that has given its lease back, and stood still, begins no execution",
    seed: 134_799,
    actions: [
      { at: 8_318, kind: "client", does: "workflow", number: 1 },
      { at: 8_069, kind: "freeze", service: 0, milliseconds: 15_000 },
      { at: 6_506, kind: "client", does: "workflow", number: 4 },
      { at: 7_602, kind: "stop", service: 2, rest: 12_000 },
      { at: 4_791, kind: "client", does: "task", number: 7 },
      {
        at: 2_815,
        kind: "network",
        network: { slow: 0.2, refused: 0.1, unanswered: 0.02, unheard: 0 },
        milliseconds: 2_000,
      },
      { at: 1_862, kind: "client", does: "once", number: 9 },
      { at: 1_949, kind: "crash", service: 0, calls: 4, happens: true, rest: 100 },
    ],
  },
  {
    title: "a call with a key does not begin in a process that has heard of its claim too late",
    seed: 135_223,
    actions: [
      { at: 9_513, kind: "freeze", service: 0, milliseconds: null },
      { at: 4_423, kind: "client", does: "task", number: 1 },
      { at: 1_535, kind: "cut", service: 1, milliseconds: 4_000 },
      { at: 8_557, kind: "client", does: "once", number: 3 },
      { at: 6_387, kind: "crash", service: 2, calls: 5, happens: true, rest: 12_000 },
      { at: 352, kind: "client", does: "cancel", number: 5 },
      { at: 5_961, kind: "client", does: "talk", number: 6 },
      { at: 891, kind: "client", does: "run", number: 7 },
      { at: 7_298, kind: "client", does: "talk", number: 9 },
      { at: 1_257, kind: "client", does: "run", number: 15 },
      { at: 1_328, kind: "client", does: "workflow", number: 16 },
      {
        at: 9_323,
        kind: "network",
        network: { slow: 0.2, refused: 0.1, unanswered: 0, unheard: 1 },
        milliseconds: 2_000,
      },
      { at: 91, kind: "client", does: "direct", number: 18 },
    ],
  },
  {
    title: "an execution that ends by itself leaves no request to stop it behind whose asker was cut off",
    seed: 128_051,
    actions: [
      { at: 9_511, kind: "client", does: "cancel", number: 0 },
      { at: 5_536, kind: "cut", service: 0, milliseconds: 4_000 },
      { at: 7_733, kind: "client", does: "cancel", number: 2 },
      {
        at: 6_390,
        kind: "network",
        network: { slow: 0, refused: 0.01, unanswered: 0.02, unheard: 1 },
        milliseconds: 15_000,
      },
      { at: 6_636, kind: "cut", service: 1, milliseconds: 15_000 },
      { at: 2_208, kind: "cut", service: 2, milliseconds: 500 },
      { at: 6_007, kind: "client", does: "cancel", number: 6 },
      { at: 2_630, kind: "client", does: "cancel", number: 7 },
      { at: 7_437, kind: "client", does: "cancel", number: 10 },
      { at: 7_257, kind: "client", does: "cancel", number: 11 },
      { at: 3_985, kind: "client", does: "cancel", number: 13 },
      { at: 370, kind: "client", does: "cancel", number: 14 },
      { at: 5_562, kind: "client", does: "cancel", number: 16 },
    ],
  },
  {
    title: "a process that was taken for gone while it was cut off, and then stands still, has its clients answered",
    seed: 136_317,
    actions: [
      { at: 546, kind: "cut", service: 2, milliseconds: 15_000 },
      { at: 6_663, kind: "client", does: "workflow", number: 7 },
      { at: 9_965, kind: "freeze", service: 0, milliseconds: null },
    ],
  },
  {
    title: "a call with a key does not begin in a process that has another name by the time it hears of its claim",
    seed: 1_096,
    actions: [
      { at: 2_687, kind: "client", does: "workflow", number: 0 },
      { at: 3_915, kind: "client", does: "task", number: 2 },
      { at: 7_236, kind: "crash", service: 2, calls: 1, happens: false, rest: 100 },
      { at: 7_183, kind: "client", does: "once", number: 4 },
      { at: 7_668, kind: "client", does: "once", number: 5 },
      { at: 4_083, kind: "freeze", service: 0, milliseconds: null },
      { at: 9_243, kind: "client", does: "task", number: 8 },
      { at: 2_621, kind: "crash", service: 1, calls: 6, happens: false, rest: 12_000 },
      { at: 8_752, kind: "stop", service: 2, rest: 100 },
      { at: 9_201, kind: "client", does: "run", number: 25, earlier: "earlier-both" },
      { at: 1_611, kind: "client", does: "direct", number: 28, earlier: "earlier-direct" },
      { at: 1_134, kind: "client", does: "run", number: 34, earlier: "earlier-held-act" },
      { at: 7_236, kind: "client", does: "task", number: 35, earlier: "earlier-task-held-act" },
      { at: 1_991, kind: "client", does: "once", number: 40, earlier: "earlier-calling-held-act" },
      { at: 6_920, kind: "client", does: "talk", number: 41, earlier: "earlier-talk-held" },
      { at: 1_075, kind: "client", does: "workflow", number: 44, earlier: "earlier-chain-sleeping" },
    ],
  },
  {
    title: "a call of a task of an earlier release that was approved just before the store went away is made",
    seed: 1_194,
    actions: [
      { at: 1_002, kind: "client", does: "once", number: 0 },
      { at: 6_016, kind: "cut", service: 1, milliseconds: 500 },
      { at: 9_733, kind: "client", does: "talk", number: 2 },
      { at: 6_196, kind: "cut", service: 2, milliseconds: 500 },
      { at: 1_273, kind: "client", does: "cancel", number: 4 },
      { at: 5_233, kind: "client", does: "task", number: 5 },
      { at: 7_748, kind: "cut", service: 2, milliseconds: 500 },
      { at: 6_868, kind: "cut", service: 2, milliseconds: 15_000 },
      { at: 9_881, kind: "cut", service: 0, milliseconds: 4_000 },
      { at: 8_310, kind: "client", does: "talk", number: 12 },
      { at: 4_194, kind: "client", does: "task", number: 14 },
      { at: 4_356, kind: "cut", service: 0, milliseconds: 4_000 },
      { at: 1_058, kind: "client", does: "run", number: 20, earlier: "earlier-done" },
      { at: 6_058, kind: "client", does: "task", number: 21, earlier: "earlier-task-done" },
      { at: 5_676, kind: "client", does: "once", number: 22, earlier: "earlier-called" },
      { at: 1_408, kind: "client", does: "run", number: 24, earlier: "earlier-waits" },
      { at: 567, kind: "client", does: "run", number: 25, earlier: "earlier-both" },
      { at: 3_984, kind: "client", does: "task", number: 27, earlier: "earlier-task-both" },
      { at: 5_391, kind: "client", does: "workflow", number: 30, earlier: "earlier-paying" },
      { at: 4_916, kind: "client", does: "workflow", number: 31, earlier: "earlier-asking" },
      { at: 1_021, kind: "client", does: "run", number: 32, earlier: "earlier-cancelled-held-act" },
      { at: 663, kind: "client", does: "cancel", number: 33, earlier: "earlier-long-held-long" },
      { at: 9_649, kind: "client", does: "task", number: 35, earlier: "earlier-task-held-act" },
      { at: 8_178, kind: "client", does: "task", number: 37, earlier: "earlier-task-approved-held-pay" },
      { at: 3_075, kind: "client", does: "workflow", number: 39, earlier: "earlier-chain-held-three" },
      { at: 6_652, kind: "client", does: "once", number: 40, earlier: "earlier-calling-held-act" },
      { at: 1_054, kind: "client", does: "talk", number: 41, earlier: "earlier-talk-held" },
      { at: 3_836, kind: "client", does: "workflow", number: 44, earlier: "earlier-chain-sleeping" },
    ],
  },
];

const build = await buildService();
const play = (one: Case) => simulate(build, one.seed, planOf(one));

test("a simulation of services repeats its trace exactly, whatever was simulated before it", async () => {
  const seeds = [7, 8, 9];
  const playAll = async (order: readonly number[]) => {
    const played: [number, Awaited<ReturnType<typeof play>>][] = [];
    for (const seed of order) played.push([seed, await play({ seed, steps: STEPS })]);
    return new Map(played);
  };
  const first = await playAll(seeds);
  assert.equal(new Set([...first.values()].map(({ digest }) => digest)).size, seeds.length);
  const again = await playAll(seeds.toReversed());
  for (const seed of seeds) assert.deepEqual(again.get(seed), first.get(seed), `seed ${seed}`);
});

for (const { title, seed, actions } of FOUND) {
  test(`in a simulation of services ${title}`, async () => {
    assert.equal((await simulate(build, seed, actions)).complaint, null);
  });
}

for (let first = 1; first <= SEEDS; first += TOGETHER) {
  const last = first + TOGETHER - 1;
  test(`services that crash, are cut off and stand still keep what they promise, in simulations ${first} to ${last}`, async () => {
    for (let seed = first; seed <= last; seed++) {
      const { complaint } = await play({ seed, steps: STEPS });
      if (complaint !== null) assert.fail(`${complaint}\nnpm run simulate -- --seed ${seed} --steps ${STEPS}`);
    }
  });
}

test("the source has every guard that the simulations are tried without", () => {
  for (const guard of GUARDS) patched(readFileSync(guard.file, "utf8"), guard);
});
