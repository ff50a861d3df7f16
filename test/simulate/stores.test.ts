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

async function play(t: TestContext, open: () => Promise<Store>): Promise<void> {
  for (let seed = 1; seed <= SEEDS; seed++) {
    const rows = await open();
    t.after(() => rows.close());
    const { complaint } = await simulate(build, seed, planOf({ seed, steps: STEPS, earlier: seed === SEEDS }), {
      rows,
    });
    assert.equal(complaint, null, `seed ${seed}`);
  }
}

test(`services keep what they promise in ${SEEDS} simulations over SQLite`, async (t) => {
  const folder = await temporaryFolder(t);
  let files = 0;
  await play(t, () => openSqliteStore({ file: join(folder, `${++files}.db`), synchronous: "normal", logger: silent }));
});

const skip = server === null ? NO_POSTGRES : false;
test(`services keep what they promise in ${SEEDS} simulations over PostgreSQL`, { skip }, async (t) => {
  const { createDatabase } = server as PostgresServer;
  await play(t, async () => openPostgresStore(await createDatabase(), { logger: silent }));
});
