/** The time limit of a sub-workflow goes on after a resume, and the time that it waits for people does not count. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { watchProbe } from "../support/probe.ts";
import { dataOf, refused, resultOf, startWorkflows } from "../support/workflow-service.ts";

const probe = (id: string, config: object = {}) => ({ id, andThen: { use: "probe", with: config } });
const ask = (id: string) => ({ id, andThen: { suspend: { reason: `${id}?` } } });

const client = await startWorkflows(null, {
  limited: { timeout: "3s", steps: [probe("before", { takes: 2_000 }), ask("ask"), probe("after", { takes: 2_000 })] },
  calls: { steps: [{ id: "sub", andWorkflow: { workflow: "limited" } }] },
  stopped: { timeout: "3s", steps: [probe("held", { hold: true, heeds: false }), probe("after", { takes: 2_000 })] },
  callsStopped: { steps: [{ id: "sub", andWorkflow: { workflow: "stopped" } }] },
  patient: { timeout: "1s", steps: [ask("ask"), probe("after")] },
  beside: {
    steps: [
      { id: "all", andAll: [{ id: "sub", andWorkflow: { workflow: "patient" } }, probe("long", { hold: true })] },
    ],
  },
});

const TIMED_OUT = 'step "sub": timed out after 3s';

test("POST .../resume: the time limit of a sub-workflow goes on from what it had used when it came to wait", async () => {
  const { executionId: id, status } = await client.execute("calls", {});
  assert.equal(status, "suspended");
  const { error } = await refused(client.command("calls", id, "resume"));
  assert.equal(error, TIMED_OUT);
});

test("POST .../resume: the time limit of a sub-workflow goes on from what it had used when it was suspended from outside", async (t) => {
  const watched = watchProbe(t);
  const { id } = client.begin("callsStopped", "stopped-1", {});
  const call = await watched.next("sub/held", id);
  const suspending = dataOf(client.command("callsStopped", id, "suspend"));
  setTimeout(call.release, 2_000, {});
  await suspending;
  const { error } = await refused(client.command("callsStopped", id, "resume"));
  assert.equal(error, TIMED_OUT);
});

test("POST .../resume: the time in which a sub-workflow waits while other branches run is not of its time limit", async (t) => {
  const watched = watchProbe(t);
  const { id, reply } = client.begin("beside", "beside-1", {});
  const call = await watched.next("long", id);
  setTimeout(call.release, 1_500, {});
  assert.equal((await dataOf(reply)).status, "suspended");
  assert.equal((await resultOf(client.command("beside", id, "resume"))).status, "completed");
});
