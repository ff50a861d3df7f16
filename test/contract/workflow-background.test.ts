/** `POST /workflows/:id/execute` with `options.background`: an answer once the start is on disk, and the execution goes on. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { createMemoryStore } from "../../core/storage/memory-store.ts";
import { validators } from "../../generated/all-validators.js";
import { eventually } from "../support/event-reader.ts";
import { watchProbe } from "../support/probe.ts";
import { CALL, cutStore, type Process, processesOf } from "../support/workflow-process.ts";
import { refused, startWorkflows } from "../support/workflow-service.ts";

const WORKFLOWS = {
  held: { steps: [{ id: "hold", andThen: { use: "probe", with: { hold: true } } }] },
  quick: { steps: [{ id: "one", andThen: { set: 7 } }] },
  broken: { steps: [{ id: "wrong", andThen: { use: "probe", with: { fails: 9, message: "no" } } }] },
};

test("POST /workflows/:id/execute with background answers 202 while the execution runs, and location says how it stands", async (t) => {
  const watched = watchProbe(t);
  const { service, state } = await startWorkflows(t, WORKFLOWS);
  const options = { background: true, executionId: "one" };
  const reply = await service.post("/workflows/held/execute", { input: null, options });
  const { success, data } = (await reply.json()) as { success: boolean; data: Record<string, unknown> };
  assert.deepEqual([reply.status, success], [202, true]);
  assert.ok(validators.ExecutionStarted(data), JSON.stringify(validators.ExecutionStarted.errors));
  const { startAt, ...rest } = data;
  assert.deepEqual(rest, { executionId: "one", workflowId: "held", status: "running" });
  assert.equal(reply.headers.get("location"), "/workflows/held/executions/one/state");
  const asked = (await (await service.get(reply.headers.get("location")!)).json()) as { data: Record<string, unknown> };
  assert.deepEqual([asked.data.status, asked.data.startAt], ["running", startAt]);
  (await watched.next("hold"))!.release({ done: true });
  await eventually(async () => (await state("held", "one")).status === "completed", "the end");
});

test("POST /workflows/:id/execute with background tells of a taken id, a wrong input and a failed step as without it", async (t) => {
  const { service, state } = await startWorkflows(t, {
    ...WORKFLOWS,
    strict: { input: { type: "object" }, steps: WORKFLOWS.quick.steps },
  });
  const execute = (workflow: string, options: object, input: unknown = null) =>
    service.post(`/workflows/${workflow}/execute`, { input, options: { background: true, ...options } });
  assert.equal((await execute("quick", { executionId: "q" })).status, 202);
  assert.equal((await refused(execute("quick", { executionId: "q" }))).status, 409);
  assert.equal((await refused(execute("strict", {}))).status, 400);
  assert.equal((await refused(execute("nothing", {}))).status, 404);
  assert.equal((await execute("broken", { executionId: "b" })).status, 202);
  await eventually(async () => (await state("broken", "b")).status === "error", "the error");
  const streamed = await refused(
    service.post("/workflows/quick/stream", { input: null, options: { background: true } }),
  );
  assert.deepEqual(
    [streamed.status, streamed.error],
    [400, "options.background is for /execute, which does not stream"],
  );
});

test("an execution that was acknowledged is on disk, and goes on after kill -9; before the commit nothing is acknowledged", async (t) => {
  const watched = watchProbe(t);
  const probe = readFileSync("test/fixtures/plugins/steps/probe.mjs", "utf8");
  const start = await processesOf(t, { workflows: WORKFLOWS }, { plugins: { "steps/probe.mjs": probe } });
  const store = createMemoryStore();
  const begin = ({ access }: Process, executionId: string) =>
    access.begin("held", { input: 1, options: { executionId } }, { ...CALL });
  const cut = cutStore(store, "sqlite");
  const first = await start(cut);
  cut.arm(0);
  let answered = false;
  begin(first, "none").then(() => {
    answered = true;
  });
  await cut.cut;
  for (let turn = 0; turn < 20; turn++) await new Promise(setImmediate);
  assert.ok(!answered);

  const killed = cutStore(store, "sqlite");
  const second = await start(killed);
  killed.arm(1);
  assert.equal((await begin(second, "one")).status, "running");
  (await watched.next("hold"))!.release({ lost: true });
  await killed.cut;
  const third = await start(cutStore(store, "sqlite"));
  (await watched.next("hold"))!.release({ again: true });
  await eventually(async () => (await third.access.state("held", "one")).status === "completed", "the end");
  await assert.rejects(third.access.state("held", "none"), { kind: "not_found" });
});
