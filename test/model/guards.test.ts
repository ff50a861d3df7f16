/**
 * Takes away one guard of the engines after the other, and sees the model test find it: what it does not notice, it does not test.
 * Those whose absence shows seldom are played with `npm run test:guards` alone. Of all it is seen that the source still has them.
 */
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { NO_POSTGRES, sharedPostgres } from "../support/postgres.ts";
import { buildEngines } from "./built.ts";
import { isPostgres, openCases } from "./engine-cases.ts";
import { GUARDS } from "./guards.ts";

const SEEDS = 100;
const ALL = process.env.PENSTOCK_GUARDS === "all";

const server = await sharedPostgres();
after(() => server?.close());

test("the source has every guard that the model test is tried without", async () => {
  for (const guard of GUARDS) (await buildEngines([guard])).remove();
});

for (const { title, engine, shows, ...patch } of GUARDS) {
  if (shows === "seldom" && !ALL) continue;
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
