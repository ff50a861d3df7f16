/** What is shown of steps that were left behind: in branches that lost, and beside a branch that failed. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { until, watchProbe } from "../support/probe.ts";
import { dataOf, refused, startWorkflows } from "../support/workflow-service.ts";

const probe = (id: string, config: object = {}) => ({ id, andThen: { use: "probe", with: config } });
const ask = (id: string) => ({ id, andThen: { suspend: { reason: `${id}?` } } });
const DEAF = { hold: true, heeds: false };

const race = {
  id: "race",
  andRace: [
    probe("quick", { takes: 10 }),
    ask("early"),
    [probe("deaf", DEAF), probe("never")],
    { id: "both", andAll: [ask("inner"), probe("held", { hold: true })] },
  ],
};
/** Its first branch fails while the others wait and work; the race goes on with its second branch. */
const half = {
  id: "half",
  andRace: [{ id: "all", andAll: [probe("broken", { takes: 10, fails: 9 }), ask("beside"), probe("deaf", DEAF)] }],
};

const client = await startWorkflows(null, {
  suspends: { steps: [race, ask("late")] },
  runs: { steps: [race, probe("on", { hold: true })] },
  halfSuspends: { steps: [{ ...half, andRace: [half.andRace[0], ask("open")] }] },
  halfRuns: { steps: [{ ...half, andRace: [half.andRace[0], probe("open", { hold: true })] }] },
});

const statuses = async (id: string) => {
  const { status, events } = await client.record(id);
  const steps = events.filter(({ id: event }: { id: string }) => event.startsWith("step:"));
  return {
    status,
    steps: Object.fromEntries(steps.map(({ from, status }: Record<string, string>) => [from, status])),
  };
};

const LOST = {
  race: "success",
  quick: "success",
  early: "cancelled",
  deaf: "cancelled",
  both: "cancelled",
  inner: "cancelled",
  held: "cancelled",
};

test("GET /workflows/executions: losers of a race are cancelled while the execution is suspended", async () => {
  const { executionId: id, status } = await client.execute("suspends");
  assert.equal(status, "suspended");
  assert.deepEqual(await statuses(id), { status: "suspended", steps: { ...LOST, late: "suspended" } });
});

test("GET /workflows/executions: losers of a race are cancelled while the execution runs", async (t) => {
  const watched = watchProbe(t);
  const { id, reply } = client.begin("runs", "runs-1");
  const call = await watched.next("on", id);
  assert.deepEqual(await statuses(id), { status: "running", steps: { ...LOST, on: "running" } });
  call.release(1);
  await dataOf(reply);
  assert.deepEqual((await statuses(id)).steps, { ...LOST, on: "success" });
});

const HALF = { all: "error", broken: "error", beside: "cancelled", deaf: "cancelled" };

test("GET /workflows/executions: what ran beside a branch that failed is cancelled while the execution is suspended", async () => {
  const { executionId: id, status } = await client.execute("halfSuspends");
  assert.equal(status, "suspended");
  assert.deepEqual((await statuses(id)).steps, { half: "suspended", ...HALF, open: "suspended" });
});

test("GET /workflows/executions: what ran beside a branch that failed is cancelled while the execution runs", async (t) => {
  const watched = watchProbe(t);
  const { id, reply } = client.begin("halfRuns", "half-1");
  const call = await watched.next("open", id);
  await until(async () => (await statuses(id)).steps.all === "error", "the failure");
  assert.deepEqual(await statuses(id), { status: "running", steps: { half: "running", ...HALF, open: "running" } });
  call.release(1);
  await dataOf(reply);
});

test("POST /workflows/:id/executions/:executionId/resume: a step that was left behind beside a failure does not wait", async () => {
  const { executionId: id } = await client.execute("halfSuspends");
  const { status, error } = await refused(
    client.command("halfSuspends", id, "resume", { resumeData: {}, options: { stepId: "beside" } }),
  );
  assert.deepEqual([status, error], [400, 'options.stepId: step "beside" does not wait to be resumed; waiting: open']);
  assert.equal((await client.resume("halfSuspends", id, { ok: 1 })).status, "completed");
});
