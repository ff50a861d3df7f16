/**
 * Takes away one guard of the engines after the other, and sees the model test find it: what it does not notice, it does not test.
 * `npm run test:guards` says after how many cases each was found.
 */
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { NO_POSTGRES, startPostgres } from "../support/postgres.ts";
import { buildEngines } from "./built.ts";
import { isPostgres, openCases } from "./engine-cases.ts";
import { GUARDS } from "./guards.ts";

const SEEDS = Number(process.env.SEEDS ?? 100);

const server = await startPostgres();
after(() => server?.close());

for (const { title, engine, ...patch } of GUARDS) {
  const skip = isPostgres(engine) && server === null ? NO_POSTGRES : false;
  test(`the model test of ${engine} notices when it is not true that ${title}`, { skip }, async (t) => {
    const built = await buildEngines([patch]);
    t.after(built.remove);
    const cases = await openCases(engine, built, server);
    t.after(cases.close);
    for (let seed = 1; seed <= SEEDS; seed++) {
      const found = await cases.play(seed);
      if (found !== null) {
        t.diagnostic(`seed ${seed}: ${found.split("\n")[0]!.slice(0, 160)}`);
        return;
      }
    }
    assert.fail(`nothing was found in ${SEEDS} cases`);
  });
}
