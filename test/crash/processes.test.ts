/**
 * Two processes on one PostgreSQL under load, and `kill -9` for one of them: the other one finishes what it ran. It takes long, so that
 * it runs with `npm run test:crash` alone.
 */
import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Pool } from "undici";
import { openPostgresStore } from "../../core/storage/postgres-store.ts";
import { silent } from "../support/agents.ts";
import { PENSTOCK, serve } from "../support/command-line.ts";
import { NO_POSTGRES, startPostgres } from "../support/postgres.ts";
import { forEach } from "./checker.ts";
import { createRandom } from "./model.ts";
import { checkExecution, WorkflowClient } from "./workflow-clients.ts";
import { MANIFEST, nothingRuns, Runs, STEP } from "./workflow-runs.ts";

const long = process.env.PENSTOCK_CRASH_ROUNDS !== undefined;
const database = long ? await startPostgres() : null;
after(() => database?.close());
const skip = !long ? "it takes a minute: npm run test:crash" : database === null ? NO_POSTGRES : false;
const CLIENTS = 32;
/** Milliseconds until all that the dead process ran has come to its end. */
const PATIENCE = 90_000;

test("what a process ran that was killed is finished by another one on the same PostgreSQL", {
  skip,
  timeout: 150_000,
}, async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "penstock-crash-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  mkdirSync(join(folder, "plugins/steps"), { recursive: true });
  writeFileSync(join(folder, "plugins/steps/run.mjs"), STEP);
  const config = join(folder, "service.yaml");
  const url = await database!.createDatabase();
  writeFileSync(config, `store: ${url}${MANIFEST}`);
  const boot = async () => {
    const server = await serve(t, [process.execPath, PENSTOCK, "serve", "--config", config, "--port", "0"], {
      cwd: folder,
    });
    const pool = new Pool(server.url, { connections: CLIENTS, bodyTimeout: 0, headersTimeout: 0 });
    t.after(() => pool.destroy());
    return { server, pool };
  };
  const [dying, living] = [await boot(), await boot()];
  const clientsOf = (name: string) =>
    Array.from({ length: CLIENTS }, (_, index) => new WorkflowClient(`${name}${index}`, createRandom(index)));
  const [theirs, others] = [clientsOf("a"), clientsOf("b")];
  let killed = false;
  let over = false;
  const working = theirs.map((client) => client.work(dying.pool, () => killed));
  const going = others.map((client) => client.work(living.pool, () => over));
  await Promise.race([...working, ...going, sleep(1_500)]);
  killed = true;
  await dying.server.interrupt("SIGKILL");
  await Promise.all(working);
  over = true;
  await Promise.all(going);
  const executions = [...theirs, ...others].flatMap((client) => client.executions);
  const runs = new Runs(folder, () => openPostgresStore(url, { logger: silent }));
  const running = await runs.check(executions);
  t.diagnostic(`${executions.length} executions, ${running} of them cut off`);
  assert.ok(running > 5, `${running} executions were cut off: too few to show anything`);
  await nothingRuns(living.pool, PATIENCE);
  await forEach(executions, (known) => checkExecution(living.pool, known));
  await runs.check(executions);
  assert.equal(await living.server.interrupt("SIGTERM"), 0);
});
