/** `penstock executions`: what can be done about executions while the service is stopped. */
import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { createMemoryStore } from "../../core/storage/memory-store.ts";
import { endExecution, letRecoverAgain, unfinishedExecutions } from "../../core/workflows/offline.ts";
import { penstock } from "../support/command-line.ts";
import { until } from "../support/probe.ts";
import { soon } from "../support/providers.ts";
import { temporaryFolder } from "../support/storage.ts";
import { CALL, cutStore, processesOf } from "../support/workflow-process.ts";
import { startWorkflows } from "../support/workflow-service.ts";

const ASK = { id: "ask", andThen: { suspend: { reason: "Yes?" } } };
const world = { runs: 0 };
(globalThis as { penstockStuck?: typeof world }).penstockStuck = world;
const PLUGINS = {
  "steps/stuck.mjs": `export default { kind: "step", execute: () => {
    globalThis.penstockStuck.runs++; return new Promise(() => {}); } };`,
};
const WORKFLOWS = { ask: { steps: [ASK] }, stuck: { steps: [{ id: "stuck", andThen: { use: "stuck" } }] } };
const begun = (id: string) => ({ input: { a: 1 }, options: { executionId: id } });

test("penstock executions list and end: refused while the store is served; then they show what is unfinished, and end it with an error", async (t) => {
  const cwd = await temporaryFolder(t);
  const store = `sqlite:${join(cwd, "test.db")}`;
  await writeFile(join(cwd, "service.yaml"), JSON.stringify({ name: "Test", version: "1.0.0", store }));
  const run = (...args: string[]) => penstock(["executions", ...args], { cwd });
  const probe = { id: "a", andThen: { use: "probe", with: { hold: true } } };
  const workflows = { asking: { steps: [ASK] }, held: { steps: [probe] } };
  const first = await startWorkflows(t, workflows, { store });
  await first.execute("asking", { n: 1 }, { executionId: "waits" });
  first.begin("held", "runs");
  await until(async () => (await first.record("runs"))?.status === "running", "the execution");
  // Nobody listens there, whatever else runs on this machine.
  const busy = await run("list", "--port", "1");
  assert.equal(busy.code, 1);
  assert.match(busy.stderr, /is in use by another process/);
  await first.service.kill();

  const listed = await run("list");
  assert.deepEqual([listed.code, listed.stderr], [0, ""]);
  const lines = listed.stdout
    .trim()
    .split("\n")
    .map((line) => line.split(/ {2,}/));
  assert.deepEqual(lines[0], ["ID", "STATUS", "AGE", "RECOVERIES", "BYTES", "WORKFLOW", "USER"]);
  assert.deepEqual(
    lines.slice(1).map(([id, status, , recoveries, , workflow]) => [id, status, recoveries, workflow]),
    [
      ["runs", "running", "0", "held"],
      ["waits", "suspended", "0", "asking"],
    ],
  );
  for (const line of lines.slice(1)) assert.ok(/^\d+[smhd]$/.test(line[2]!) && Number(line[4]) > 300, line.join());
  const [ended, endedToo, unknown] = [
    await run("end", "runs", "--reason", "the shop has closed"),
    await run("end", "waits"),
    await run("end", "none"),
  ];
  assert.deepEqual([ended.code, ended.stdout], [0, 'runs: ended with the error "the shop has closed"\n']);
  assert.deepEqual([endedToo.code, unknown.code], [0, 1]);
  assert.match(unknown.stderr, /there is no execution "none"/);

  const second = await startWorkflows(t, workflows, { store });
  const states = [await second.state("held", "runs"), await second.state("asking", "waits")];
  assert.deepEqual(
    states.map(({ status, error }) => [status, error]),
    [
      ["error", { message: "the shop has closed", stepId: "a" }],
      ["error", { message: "ended by hand" }],
    ],
  );
});

/** Processes on one store that says it is shared. */
async function shared(t: TestContext) {
  const base = createMemoryStore();
  const start = await processesOf(t, { workflows: WORKFLOWS }, { plugins: PLUGINS });
  const store = { ...base, kind: "shared" };
  const times = { heartbeatInterval: 20, leaseTimeout: 300, stopRequestInterval: 20 };
  const open = async () => {
    const cut = cutStore(store);
    const process = await start(cut, { processTimes: times });
    t.after(() => process.opened.close());
    return { ...process, cut };
  };
  return { store, open };
}

const listOf = async (store: Parameters<typeof unfinishedExecutions>[0]) => {
  const all: [string, number][] = [];
  for await (const { start, recoveries } of unfinishedExecutions(store)) all.push([start.id, recoveries]);
  return all;
};

test("endExecution and letRecoverAgain on a shared store: refused while the process that runs it lives; what is suspended can be ended beside it", async (t) => {
  const { store, open } = await shared(t);
  const { access } = await open();
  world.runs = 0;
  access.execute("stuck", begun("runs"), CALL).catch(() => {});
  await until(() => world.runs === 1, "the step");
  await access.execute("ask", begun("waits"), CALL);
  const runs = { id: "runs", user: undefined };
  for (const refused of [endExecution(store, runs, "x", 500), letRecoverAgain(store, runs, 500)])
    await assert.rejects(soon(refused, "the refusal"), /a process uses the store: stop the service first/);
  const waits = { id: "waits", user: undefined };
  await assert.rejects(letRecoverAgain(store, waits), /"waits" is suspended: resume it/);
  await endExecution(store, waits, "no more");
  assert.equal((await access.state("ask", "waits")).status, "error");
  await assert.rejects(endExecution(store, waits, "no more"), /"waits" is over/);
  assert.deepEqual(await listOf(store), [["runs", 0]]);
  assert.equal((await access.state("stuck", "runs")).status, "running");
});

test("letRecoverAgain: an execution that has stopped its process as often as it may is taken up by the next start", async (t) => {
  const base = createMemoryStore();
  const start = await processesOf(
    t,
    { workflows: { stuck: { ...WORKFLOWS.stuck, recoveries: 1 } } },
    { plugins: PLUGINS },
  );
  world.runs = 0;
  const dies = async (runs: number, execute = false) => {
    const cut = cutStore(base, "sqlite");
    const { access } = await start(cut);
    if (execute) access.execute("stuck", begun("runs"), CALL).catch(() => {});
    await until(() => world.runs === runs, `run ${runs}`);
    cut.arm(0);
  };
  await dies(1, true);
  await dies(2);
  assert.deepEqual(await listOf(base), [["runs", 1]]);
  await letRecoverAgain(base, { id: "runs", user: undefined });
  assert.deepEqual(await listOf(base), [["runs", 0]]);
  await dies(3);
  await dies(4);
  const { access, opened } = await start(cutStore(base, "sqlite"));
  await opened.engine.live.get("runs")?.settled;
  assert.deepEqual((await access.state("stuck", "runs")).error, {
    message: "stopped its process 2 times",
    stepId: "stuck",
  });
});
