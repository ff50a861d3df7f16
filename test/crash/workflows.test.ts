/**
 * `kill -9` while 64 connections execute, stream, suspend and resume workflows. A real process with a SQLite file; SIGKILL at a
 * moment chosen by chance, in the middle of a start too; what was acknowledged reaches its end, and what is on record is not done again.
 *
 * Five rounds, or `PENSTOCK_CRASH_ROUNDS` of them (`npm run test:crash`: one hundred). `PENSTOCK_CRASH_SEED` repeats the clients'
 * choices of a run; the moment at which the signal arrives nobody can repeat.
 */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { Pool } from "undici";
import { openSqliteStore } from "../../core/storage/sqlite-store.ts";
import { findExecution, loadExecution } from "../../core/workflows/load.ts";
import { silent } from "../support/agents.ts";
import { PENSTOCK, serve } from "../support/command-line.ts";
import { forEach } from "./checker.ts";
import { createRandom } from "./model.ts";
import { checkExecution, type Known, WorkflowClient } from "./workflow-clients.ts";

const ROUNDS = Number(process.env.PENSTOCK_CRASH_ROUNDS ?? 5);
const SEED = Number(process.env.PENSTOCK_CRASH_SEED ?? Date.now() % 1_000_000_007);
const CLIENTS = 64;
/** Milliseconds of load before the signal, at least and at most. */
const LOAD = [50, 900] as const;
/** Milliseconds within which a start is cut off, in every third round. */
const BOOT = 1_200;

/** Steps write the key of every run to a file, which outlives the process: what is written is there after SIGKILL. */
const STEP = `import { appendFileSync } from "node:fs";
export default { kind: "step", config: { type: "object", properties: { key: { type: "string" } } },
  execute: async ({ data, config, idempotencyKey }) => {
    appendFileSync("runs.log", idempotencyKey + "\\n");
    await new Promise((resolve) => setTimeout(resolve, Math.random() * 20));
    return config.key === undefined ? { ...data, n: data.n + 1 } : { [config.key]: data.n - 3 };
  } };`;

const MANIFEST = `
name: Crash
version: 1.0.0
store: sqlite:data/penstock.db
logs: { level: warn }
plugins: [plugins]
workflows:
  straight:
    steps:
      - { id: one, andThen: { use: run } }
      - { id: two, andThen: { set: { n: "{{ data.n + 1 }}" } } }
      - { id: three, andThen: { use: run } }
      - { id: both, andAll: [{ id: a, andThen: { use: run, with: { key: a } } }, { id: b, andThen: { use: run, with: { key: b } } }] }
      - { id: last, andThen: { set: { n: "{{ steps.three.n }}", a: "{{ data.a }}", b: "{{ data.b }}" } } }
  approval:
    steps:
      - { id: one, andThen: { use: run } }
      - { id: ask, andThen: { suspend: { reason: May it go on?, data: { n: "{{ data.n }}" } } } }
      - { id: two, andThen: { use: run } }
`;

/** What steps have done so far, against what was on record when they did it. */
class Runs {
  readonly #folder: string;
  readonly #done = new Set<string>();
  #offset = 0;
  total = 0;
  constructor(folder: string) {
    this.#folder = folder;
  }

  /** To be called while no process runs: nothing that had been done at the last call has run since. Gives how many were cut off. */
  async check(executions: readonly Known[]): Promise<number> {
    const file = join(this.#folder, "runs.log");
    const text = existsSync(file) ? readFileSync(file, "utf8") : "";
    for (const key of text.slice(this.#offset).split("\n")) {
      assert.ok(!this.#done.has(key), `${key} was on record, and ran again`);
      this.total += 1;
    }
    this.#offset = text.length;
    const path = join(this.#folder, "data", "penstock.db");
    if (!existsSync(path)) return 0;
    const store = await openSqliteStore({ file: path, where: path, synchronous: "normal", logger: silent });
    let running = 0;
    try {
      for (const { id } of executions) {
        const found = await findExecution(store, id);
        const loaded = found === null ? null : await loadExecution(store, found);
        if (found?.open) running += 1;
        for (const step of loaded?.fold.steps.values() ?? []) {
          if (step.status === "done") this.#done.add(`${id}:${step.path}`);
        }
      }
    } finally {
      await store.close();
    }
    return running;
  }
}

test(`no acknowledged execution is lost, stuck or done twice after kill -9: ${ROUNDS} rounds, seed ${SEED}`, async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "penstock-crash-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  mkdirSync(join(folder, "plugins/steps"), { recursive: true });
  writeFileSync(join(folder, "plugins/steps/run.mjs"), STEP);
  const config = join(folder, "service.yaml");
  writeFileSync(config, MANIFEST);
  const random = createRandom(SEED);
  const clients = Array.from(
    { length: CLIENTS },
    (_, index) => new WorkflowClient(`c${index}`, createRandom(SEED + 1 + index)),
  );
  const runs = new Runs(folder);
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
    await sleep(BOOT / 3 + random() * BOOT);
    process.kill(-child.pid!, "SIGKILL");
    await once(child, "close");
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
  for (let round = 0; round < ROUNDS; round += 1) {
    if (round % 3 === 1) {
      await bootInVain();
      await runs.check(touched(false));
    }
    const { server, pool } = await boot();
    await check(pool, false);
    let killed = false;
    const working = Promise.all(clients.map((client) => client.work(pool, () => killed)));
    const [least, most] = LOAD;
    await Promise.race([working, sleep(least + random() * (most - least))]);
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
  assert.ok(cutOff >= ROUNDS * 10, `${cutOff} executions were cut off in ${ROUNDS} rounds: too few to show anything`);
});

/** What the last process left is taken up, and comes to its end. */
async function nothingRuns(pool: Pool): Promise<void> {
  for (const end = Date.now() + 30_000; ; await sleep(20)) {
    const reply = await pool.request({ method: "GET", path: "/workflows/executions?status=running&limit=100" });
    const { data } = (await reply.body.json()) as { data: { id: string }[] };
    if (data.length === 0) return;
    assert.ok(Date.now() < end, `still running: ${data.map(({ id }) => id)}`);
  }
}
