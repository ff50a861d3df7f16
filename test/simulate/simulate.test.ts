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
import { type Case, planOf } from "./plan.ts";
import { simulate } from "./simulation.ts";

const SEEDS = 25;
const STEPS = 20;

/** Simulations that went wrong once, as `npm run simulate` has shrunk them. */
const FOUND: readonly (Case & { readonly title: string })[] = [
  {
    title: "a call of a kept run that a person has approved runs, also when the store is away as the run goes on",
    seed: 2,
    steps: 20,
    only: [5, 6, 18],
  },
];

const build = await buildService();
const play = (one: Case) => simulate(build, one.seed, planOf(one));

test("a simulation of services repeats its trace exactly", async () => {
  const one = { seed: 7, steps: STEPS };
  const first = await play(one);
  assert.deepEqual(await play(one), first);
  assert.notEqual((await play({ seed: 8, steps: STEPS })).digest, first.digest);
});

for (const { title, ...one } of FOUND) {
  test(`in a simulation of services ${title}`, async () => {
    assert.equal((await play(one)).complaint, null);
  });
}

test(`services that crash, are cut off and stand still keep what they promise, in ${SEEDS} simulations`, async () => {
  for (let seed = 1; seed <= SEEDS; seed++) {
    const { complaint } = await play({ seed, steps: STEPS });
    if (complaint !== null) assert.fail(`${complaint}\nnpm run simulate -- --seed ${seed} --steps ${STEPS}`);
  }
});

test("the source has every guard that the simulations are tried without", () => {
  for (const guard of GUARDS) patched(readFileSync(guard.file, "utf8"), guard);
});
