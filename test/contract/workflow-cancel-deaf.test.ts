/** A step that does not heed its signal is given up 5 s after a cancel. It takes that long: a file of its own. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { watchProbe } from "../support/probe.ts";
import { dataOf, startWorkflows } from "../support/workflow-service.ts";

const client = await startWorkflows(null, {
  deaf: { steps: [{ id: "a", andThen: { use: "probe", with: { hold: true, heeds: false, state: { late: true } } } }] },
});

test("POST .../cancel: after 5 s a step that is deaf is left alone, and nothing comes of what it does later", async (t) => {
  const watched = watchProbe(t);
  const { reply, id } = client.begin("deaf", "d1");
  const call = await watched.next("a", id);
  const began = performance.now();
  const cancelled = await dataOf(client.command("deaf", id, "cancel", { reason: "enough" }));
  const took = performance.now() - began;
  assert.ok(took > 4_900 && took < 25_000, `${took} ms`);
  assert.equal(cancelled.reason, "enough");
  assert.equal((await dataOf(reply)).status, "cancelled");
  const before = await client.record(id);
  call.release("late");
  await new Promise((resolve) => setTimeout(resolve, 50));
  assert.deepEqual(await client.record(id), before);
  assert.deepEqual((await client.state("deaf", id)).workflowState, {});
});
