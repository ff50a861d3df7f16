/**
 * `kill -9` while 64 connections execute, stream, suspend and resume workflows. A real process with a SQLite file; SIGKILL at a
 * moment chosen by chance, in the middle of a start too; what was acknowledged reaches its end, and what is on record is not done again.
 *
 * Three rounds, or `PENSTOCK_CRASH_ROUNDS` of them (`npm run test:crash`: one hundred). `PENSTOCK_CRASH_SEED` repeats the clients'
 * choices of a run; the moment at which the signal arrives nobody can repeat.
 */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Pool } from "undici";
import { openSqliteStore } from "../../core/storage/sqlite-store.ts";
import { silent } from "../support/agents.ts";
import { PENSTOCK, serve, signalGroup } from "../support/command-line.ts";
import { forEach } from "./checker.ts";
import { createRandom } from "./model.ts";
import { checkExecution, type Known, WorkflowClient } from "./workflow-clients.ts";
import { MANIFEST, nothingRuns, Runs, STEP } from "./workflow-runs.ts";

const ROUNDS = Number(process.env.PENSTOCK_CRASH_ROUNDS ?? 3);
const SEED = Number(process.env.PENSTOCK_CRASH_SEED ?? Date.now() % 1_000_000_007);
const CLIENTS = 64;
/** Milliseconds of load before the signal, at least and at most. */
const LOAD = [50, 900] as const;
/** Milliseconds within which a start is cut off, in every third round. */
const BOOT = 1_200;

test(`no acknowledged execution is lost, stuck or done twice after kill -9: ${ROUNDS} rounds, seed ${SEED}`, async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "penstock-crash-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  mkdirSync(join(folder, "plugins/steps"), { recursive: true });
  writeFileSync(join(folder, "plugins/steps/run.mjs"), STEP);
  const config = join(folder, "service.yaml");
  writeFileSync(config, `store: sqlite:data/penstock.db${MANIFEST}`);
  const random = createRandom(SEED);
  const clients = Array.from(
    { length: CLIENTS },
    (_, index) => new WorkflowClient(`c${index}`, createRandom(SEED + 1 + index)),
  );
  const file = join(folder, "data", "penstock.db");
  const runs = new Runs(folder, async () => {
    return existsSync(file) ? openSqliteStore({ file, where: file, synchronous: "normal", logger: silent }) : null;
  });
  const command = [process.execPath, PENSTOCK, "serve", "--config", config, "--port", "0"] as const;
  let checked = 0;

  const boot = async () => {
    const server = await serve(t, [...command], { cwd: folder });
    return { server, pool: new Pool(server.url, { connections: CLIENTS, bodyTimeout: 0, headersTimeout: 0 }) };
  };
  /** A start that does not come to its end, or only just: also while it takes executions up. */
  const bootInVain = async () => {
    const [program, ...args] = command;
    const env = { PATH: process.env.PATH, HOME: process.env.HOME };
    const child = spawn(program, args, { cwd: folder, env, detached: true, stdio: "ignore" });
    const closed = once(child, "close");
    await sleep(BOOT / 3 + random() * BOOT);
    signalGroup(child, "SIGKILL");
    await closed;
  };
  /** Those that were begun or asked about since the last check, or all. */
  const touched = (all: boolean) =>
    clients.flatMap(({ executions }) => executions.filter((known) => all || !settled.has(known)));
  const settled = new Set<Known>();
  const check = async (pool: Pool, all: boolean) => {
    await nothingRuns(pool);
    const executions = touched(all);
    await forEach(executions, (known) => checkExecution(pool, known));
    for (const known of executions) if (known.fact === "over") settled.add(known);
    checked += executions.length;
  };

  let cutOff = 0;
  // More of them, and longer ones, where a slow machine has begun too little to show anything.
  for (let round = 0; round < ROUNDS || cutOff < ROUNDS * 3; round += 1) {
    if (round % 3 === 1) {
      await bootInVain();
      await runs.check(touched(false));
    }
    const { server, pool } = await boot();
    await check(pool, false);
    let killed = false;
    const working = Promise.all(clients.map((client) => client.work(pool, () => killed)));
    const [least, most] = LOAD;
    const load = (least + random() * (most - least)) * 2 ** Math.max(0, round - ROUNDS + 1);
    await Promise.race([working, sleep(load)]);
    killed = true;
    await server.interrupt("SIGKILL");
    await working;
    await pool.destroy();
    const running = await runs.check(touched(false));
    cutOff += running;
    const acknowledged = clients.reduce((sum, client) => sum + client.acknowledged, 0);
    t.diagnostic(`round ${round + 1}: ${acknowledged} acknowledged so far, ${running} cut off while they ran`);
  }
  const { server, pool } = await boot();
  await check(pool, true);
  await pool.destroy();
  assert.equal(await server.interrupt("SIGTERM"), 0);
  await runs.check(touched(true));
  t.diagnostic(`${checked} executions looked at, ${runs.total} runs of steps`);
});
