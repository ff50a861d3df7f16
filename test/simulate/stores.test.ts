/**
 * The same simulations over real stores: what must be true is true over them too. What happens repeats less exactly there. The last one
 * begins with the rows of an earlier release.
 */
import assert from "node:assert/strict";
import { join } from "node:path";
import { after, type TestContext, test } from "node:test";
import { openPostgresStore } from "../../core/storage/postgres-store.ts";
import { openSqliteStore } from "../../core/storage/sqlite-store.ts";
import type { Store } from "../../core/storage/store.ts";
import { NO_POSTGRES, type PostgresServer, sharedPostgres } from "../support/postgres.ts";
import { silent } from "../support/providers.ts";
import { temporaryFolder } from "../support/storage.ts";
import { buildService } from "./build.ts";
import { planOf } from "./plan.ts";
import { simulate } from "./simulation.ts";

const SEEDS = 2;
const STEPS = 20;

const server = await sharedPostgres();
after(() => server?.close());
const build = await buildService();

async function play(t: TestContext, seed: number, rows: Store): Promise<void> {
  t.after(() => rows.close());
  const plan = planOf({ seed, steps: STEPS, earlier: seed === SEEDS });
  assert.equal((await simulate(build, seed, plan, { rows })).complaint, null);
}

const skip = server === null ? NO_POSTGRES : false;
for (let seed = 1; seed <= SEEDS; seed++) {
  test(`services keep what they promise in simulation ${seed} over SQLite`, async (t) => {
    const file = join(await temporaryFolder(t), "simulated.db");
    await play(t, seed, await openSqliteStore({ file, synchronous: "normal", logger: silent }));
  });

  test(`services keep what they promise in simulation ${seed} over PostgreSQL`, { skip }, async (t) => {
    const url = await (server as PostgresServer).createDatabase(t);
    await play(t, seed, await openPostgresStore(url, { logger: silent }));
  });
}
