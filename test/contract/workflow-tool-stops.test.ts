/** Suspend and cancel while a tool works that does not heed its signal: what it did is recorded, and it is not done again. */
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { pluginFolder } from "../support/plugin-folder.ts";
import { type ProbeCall, until, watchProbe } from "../support/probe.ts";
import { dataOf, startWorkflows } from "../support/workflow-service.ts";

/** Pays whatever happens, as soon as the test lets it. */
const PAY = `import { channel } from "node:diagnostics_channel";
  const calls = channel("penstock:test:probe");
  export default { kind: "tool", description: "Pays", execute: (input, { signal, executionId, idempotencyKey }) =>
    new Promise((resolve) => {
      const path = idempotencyKey.slice(executionId.length + 1);
      const call = { executionId, path, aborted: null, release: resolve };
      signal.addEventListener("abort", () => { call.aborted = signal.reason; });
      calls.publish(call);
    }) };`;

const pay = (id: string) => ({ id, andThen: { tool: "pay", input: {} } });
const client = await startWorkflows(
  null,
  { paying: { steps: [pay("pay"), { id: "last", andThen: { set: { paid: "{{ data }}" } } }] } },
  { tools: { pay: { use: "pay" } } },
  { plugins: [pluginFolder({ after } as never, { "tools/pay.mjs": PAY })] },
);

const signalled = (call: ProbeCall) => until(() => call.aborted !== null, "the signal");

test("POST .../suspend waits for a tool that does not heed its signal: its result is recorded, and it does not run again after the resume", async (t) => {
  const watched = watchProbe(t);
  const { id, reply } = client.begin("paying", "suspended", 1);
  const call = await watched.next("pay", id);
  const suspending = dataOf(client.command("paying", id, "suspend"));
  await signalled(call);
  assert.equal((await client.state("paying", id)).status, "running", "it waits for the tool");
  call.release("receipt 1");
  assert.equal((await suspending).status, "suspended");
  assert.equal((await dataOf(reply)).suspension.stepId, "last");
  assert.deepEqual((await client.resume("paying", id)).result, { paid: "receipt 1" });
  assert.deepEqual(watched.paths(id), ["pay"]);
});

test("POST .../cancel waits for a tool that does not heed its signal: what it gave within 5 s is on record", async (t) => {
  const watched = watchProbe(t);
  const { id, reply } = client.begin("paying", "cancelled", 1);
  const call = await watched.next("pay", id);
  const cancelling = dataOf(client.command("paying", id, "cancel"));
  await signalled(call);
  call.release("receipt 2");
  assert.equal((await cancelling).status, "cancelled");
  assert.equal((await dataOf(reply)).status, "cancelled");
  const { events } = await client.record(id);
  assert.equal(events.find(({ from }: { from: string }) => from === "pay").output, "receipt 2");
});
