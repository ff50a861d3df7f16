/**
 * Clients by chance on every engine, over few rows, with crashes, cuts and delays; what they were told has to have an explanation.
 * `PENSTOCK_MODEL_SEEDS` cases (default 100, `npm run test:model`: 1,000), from `PENSTOCK_MODEL_SEED`.
 */
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { NO_POSTGRES, sharedPostgres } from "../support/postgres.ts";
import { buildEngines } from "./built.ts";
import { type Engine, isPostgres, openCases } from "./engine-cases.ts";

const SEEDS = Number(process.env.PENSTOCK_MODEL_SEEDS ?? 100);
const SEED = Number(process.env.PENSTOCK_MODEL_SEED ?? Date.now() % 1_000_000_007);

const CUTS = ["before", "sent", "late", "answered", "terminated"];

/** Each engine's part of the seeds, which is the larger the more can happen to it, and what the cases have to meet beside conflicts. */
const PARTS: readonly { engine: Engine; part: number; meets: readonly string[] }[] = [
  { engine: "memory", part: 0.2, meets: [] },
  { engine: "sqlite", part: 0.3, meets: ["unanswered"] },
  { engine: "postgres in one call", part: 0.3, meets: CUTS },
  { engine: "postgres in steps", part: 0.2, meets: CUTS },
];

const server = await sharedPostgres();
const built = await buildEngines();
after(async () => {
  built.remove();
  await server?.close();
});

for (const { engine, part, meets } of PARTS) {
  const count = Math.ceil(SEEDS * part);
  const skip = isPostgres(engine) && server === null ? NO_POSTGRES : false;
  test(`store ${engine}: what many clients are told can be explained, whatever breaks: ${count} cases from ${SEED}`, {
    skip,
  }, async (t) => {
    const cases = await openCases(engine, built, server);
    t.after(cases.close);
    for (let seed = SEED; seed < SEED + count; seed++) {
      const complaint = await cases.play(seed);
      if (complaint !== null) assert.fail(`seed ${seed}: ${complaint}`);
    }
    for (const name of ["committed", "conflict", "rows", "joined", ...meets])
      assert.ok(cases.seen[name], `no case met ${name}`);
    t.diagnostic(JSON.stringify(cases.seen));
  });
}
