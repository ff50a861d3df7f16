/** Contract, `POST /workflows/:id/executions/:executionId/suspend`: from outside, while it runs. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { validators } from "../../generated/all-validators.js";
import { type Probe, type ProbeCall, until, watchProbe } from "../support/probe.ts";
import { dataOf, inFlight, refused, startWorkflows, told } from "../support/workflow-service.ts";

const set = (id: string, value: unknown) => ({ id, andThen: { set: value } });
const probe = (id: string, config: object = {}) => ({ id, andThen: { use: "probe", with: config } });
const ask = (id: string) => ({ id, andThen: { suspend: { reason: `${id}?` } } });
const COUNT = { id: "a", andThen: { use: "count-to", with: { until: 2 } } };
const HELD = { hold: true };
const DEAF = { hold: true, heeds: false };

const client = await startWorkflows(null, {
  line: {
    steps: [probe("a", DEAF), probe("b", { gives: { b: 1 } }), set("last", { data: "{{ data }}", a: "{{ steps.a }}" })],
  },
  heeding: { steps: [probe("a", HELD), set("last", "{{ data }}")] },
  final: { steps: [probe("a", DEAF)] },
  checked: { resume: { type: "object", required: ["ok"] }, steps: [probe("a", DEAF), probe("b")] },
  asking: { steps: [probe("a", DEAF), ask("ask"), set("last", "{{ data }}")] },
  all: {
    steps: [
      {
        id: "all",
        andAll: [[probe("a", DEAF), probe("a2")], [probe("b", HELD), probe("b2")], probe("c", { gives: { c: 1 } })],
      },
    ],
  },
  waiting: { steps: [{ id: "all", andAll: [ask("ask"), probe("b", HELD)] }] },
  race: { steps: [{ id: "race", andRace: [probe("a", HELD), probe("b", HELD)] }, set("last", "{{ data }}")] },
  when: { steps: [{ id: "gate", andWhen: { if: "true", then: [probe("a", DEAF), probe("b")] } }] },
  inner: { steps: [probe("in", DEAF), probe("out")] },
  outer: { steps: [set("a", "{{ data }}"), { id: "sub", andWorkflow: { workflow: "inner" } }, probe("b")] },
  trying: { steps: [{ ...COUNT, retry: { attempts: 9, delay: "1h" } }] },
  tries: { steps: [{ id: "all", retry: { attempts: 3, delay: "1h" }, andAll: [COUNT] }] },
  self: { steps: [probe("a", { asks: "own reason", takes: 300, heeds: false })] },
  timed: { timeout: "1s", steps: [probe("a", HELD)] },
});

/** Until a step has been told to stop. */
const signalled = (call: ProbeCall) => until(() => call.aborted !== null, "the signal");

let executions = 0;
/** An execution whose step `path` is running. */
async function running(workflow: string, path: string, watched: Probe, input: unknown = { n: 1 }) {
  const id = `${workflow}-${++executions}`;
  const { reply } = client.begin(workflow, id, input);
  const call = await watched.next(path, id);
  return { id, reply, call };
}

const suspendAll = async (workflow: string, id: string, reason?: string) => {
  const data = await dataOf(client.command(workflow, id, "suspend", { reason }));
  assert.ok(validators.ExecutionSuspended(data));
  return data;
};

describe("POST /workflows/:id/executions/:executionId/suspend", () => {
  test("POST .../suspend stops at the next boundary; the reply and that of execute say so, and the record has it", async (t) => {
    const watched = watchProbe(t);
    const { id, reply, call } = await running("line", "a", watched);
    const suspending = suspendAll("line", id, "budget");
    await signalled(call);
    assert.equal((await client.state("line", id)).status, "running");
    call.release({ a: 1 });
    const { status, suspension } = await suspending;
    assert.deepEqual([status, suspension.reason], ["suspended", "budget"]);
    const result = await dataOf(reply);
    assert.deepEqual(
      [result.status, result.result, result.suspension],
      ["suspended", null, { ...suspension, suspendedStepIndex: 1, stepId: "b" }],
    );
    assert.deepEqual((await client.record(id)).status, "suspended");
    assert.deepEqual(watched.paths(id), ["a"]);
  });
  for (const [title, resumeData] of [
    ["without data", undefined],
    ["with data", { ok: true }],
  ] as const) {
    test(`POST .../suspend, resumed ${title}: the step that it stood at gets what the step before gave`, async (t) => {
      const watched = watchProbe(t);
      const { id, call } = await running("line", "a", watched);
      const suspending = suspendAll("line", id);
      await signalled(call);
      call.release({ a: 1 });
      assert.equal((await suspending).suspension.reason, "API request");
      assert.deepEqual((await client.resume("line", id, resumeData)).result, { data: { b: 1 }, a: { a: 1 } });
      const { context } = await watched.next("b", id);
      assert.deepEqual([context.data, context.resumeData, context.attempt], [{ a: 1 }, resumeData, 1]);
      assert.deepEqual(watched.paths(id), ["a", "b"]);
      assert.deepEqual(told(await client.events("line", id)), [
        ...["workflow-start", "step-start a", "step-complete a", "workflow-suspended", "workflow-result"],
        ...["workflow-start", "step-start b", "step-complete b", "step-start last", "step-complete last"],
        ...["workflow-complete", "workflow-result"],
      ]);
    });
  }
  test("POST .../suspend: a step that heeds its signal is stopped at once, and runs again after the resume", async (t) => {
    const watched = watchProbe(t);
    const { id, reply, call } = await running("heeding", "a", watched);
    await suspendAll("heeding", id, "now");
    assert.match(String(call.aborted), /now/);
    const { suspension } = await dataOf(reply);
    assert.deepEqual([suspension.stepId, suspension.suspendedStepIndex], ["a", 0]);
    const resumed = client.resume("heeding", id);
    const again = await watched.next("a", id);
    assert.deepEqual([again.context.attempt, again.context.data, again.context.resumeData], [1, { n: 1 }, undefined]);
    again.release("done");
    assert.equal((await resumed).result, "done");
  });
  test("POST .../suspend is 400 when the last step ends meanwhile", async (t) => {
    const watched = watchProbe(t);
    const { id, reply, call } = await running("final", "a", watched);
    const suspending = client.command("final", id, "suspend");
    await signalled(call);
    call.release("done");
    const { status, error } = await refused(suspending);
    assert.deepEqual([status, error], [400, "the execution is already completed"]);
    assert.equal((await dataOf(reply)).status, "completed");
  });
  test("POST .../suspend of a step that suspends itself meanwhile: its own reason stands", async (t) => {
    const watched = watchProbe(t);
    const { id } = await running("self", "a", watched);
    assert.equal((await suspendAll("self", id, "from outside")).suspension.reason, "own reason");
  });
  test("POST .../suspend: the execution may be resumed without data although the workflow has a resume schema; data that is given must fit", async (t) => {
    const watched = watchProbe(t);
    const { id, call } = await running("checked", "a", watched);
    const suspending = suspendAll("checked", id);
    await signalled(call);
    call.release({});
    await suspending;
    const { status, error } = await refused(client.command("checked", id, "resume", { resumeData: {} }));
    assert.deepEqual([status, error], [400, "resumeData.ok is required"]);
    assert.equal((await client.resume("checked", id)).status, "completed");
  });
  test("POST .../suspend before a step that suspends itself: it asks all the same, and is resumed for itself", async (t) => {
    const watched = watchProbe(t);
    const { id, call } = await running("asking", "a", watched);
    const suspending = suspendAll("asking", id);
    await signalled(call);
    call.release({ a: 1 });
    await suspending;
    assert.equal((await client.resume("asking", id, { not: "an answer" })).suspension!.reason, "ask?");
    assert.deepEqual((await client.resume("asking", id, { ok: 1 })).result, { a: 1, ok: 1 });
  });
  test("POST .../suspend in branches: each stops at its own boundary, what is done is kept", async (t) => {
    const watched = watchProbe(t);
    const { id, call } = await running("all", "a", watched);
    await watched.next("b", id);
    const suspending = suspendAll("all", id);
    await signalled(call);
    call.release({ a: 1 });
    await suspending;
    const resumed = client.resume("all", id);
    (await watched.next("b", id)).release({ b: 1 });
    assert.deepEqual((await resumed).result, { a: 1, b: 1, c: 1 });
    assert.deepEqual(watched.paths(id).sort(), ["a", "a2", "b", "b", "b2", "c"]);
  });
  test("POST .../suspend in branches, one of which waits already: one resume for each", async (t) => {
    const watched = watchProbe(t);
    const { id } = await running("waiting", "b", watched, {});
    assert.equal((await suspendAll("waiting", id, "outside")).suspension.reason, "outside");
    const resumed = client.resume("waiting", id);
    (await watched.next("b", id)).release({ b: 1 });
    assert.equal((await resumed).suspension!.stepId, "ask");
    assert.deepEqual((await client.resume("waiting", id, { ok: 1 })).result, { ok: 1, b: 1 });
  });
  test("in branches, one of which waits already: options.stepId may choose it", async (t) => {
    const watched = watchProbe(t);
    const { id } = await running("waiting", "b", watched, {});
    await suspendAll("waiting", id);
    const resumed = client.resume("waiting", id, { ok: 1 }, { stepId: "ask" });
    (await watched.next("b", id)).release({ b: 1 });
    assert.deepEqual((await resumed).result, { ok: 1, b: 1 });
  });
  test("POST .../suspend in andRace: it goes on where it was", async (t) => {
    const watched = watchProbe(t);
    const { id } = await running("race", "a", watched);
    await watched.next("b", id);
    await suspendAll("race", id);
    const resumed = client.resume("race", id);
    (await watched.next("b", id)).release("b won");
    assert.equal((await resumed).result, "b won");
  });
  test("POST .../suspend in a branch of andWhen, and in a sub-workflow, stops there and goes on there", async (t) => {
    const watched = watchProbe(t);
    for (const [workflow, path, next] of [
      ["when", "a", "b"],
      ["outer", "sub/in", "sub/out"],
    ] as const) {
      const { id, call } = await running(workflow, path, watched);
      const suspending = suspendAll(workflow, id);
      await signalled(call);
      call.release({ a: 1 });
      await suspending;
      const { suspension } = await client.state(workflow, id);
      assert.equal(suspension!.stepId, next);
      assert.deepEqual((await client.resume(workflow, id)).result, { a: 1 });
      assert.deepEqual((await watched.next(next, id)).context.data, { a: 1 });
    }
  });
  test("POST .../suspend while a step waits for another try: at once; after the resume that try is made", async (t) => {
    const watched = watchProbe(t);
    for (const [workflow, attempt] of [
      ["trying", 2],
      ["tries", 1],
    ] as const) {
      const { id } = await running(workflow, "a", watched);
      await new Promise((resolve) => setTimeout(resolve, 20));
      await suspendAll(workflow, id);
      assert.deepEqual((await client.resume(workflow, id)).result, { n: 1, count: 2 });
      assert.equal((await watched.next("a", id)).context.attempt, attempt);
    }
  });
  test("POST .../suspend, several at once: all are told of the one suspension", async (t) => {
    const watched = watchProbe(t);
    const { id, call } = await running("line", "a", watched);
    const before = await inFlight(client);
    const all = ["one", "two", "three"].map((reason) => suspendAll("line", id, reason));
    await until(async () => (await inFlight(client)) >= before + 3, "all of them");
    call.release({});
    const [first, ...others] = await Promise.all(all);
    for (const other of others) assert.deepEqual(other, first);
  });
  test("POST .../suspend: the time limit of the workflow ends while it is suspended, and goes on after", async (t) => {
    const watched = watchProbe(t);
    const { id } = await running("timed", "a", watched);
    await suspendAll("timed", id);
    const resumed = client.resume("timed", id);
    (await watched.next("a", id)).release("in time");
    assert.equal((await resumed).result, "in time");
  });
  test("POST .../suspend of a step that ignores it: 503 after limits.request, and the suspension still stands", async (t) => {
    const watched = watchProbe(t);
    const slow = await startWorkflows(
      t,
      { f: { steps: [probe("a", DEAF), probe("b")] } },
      { server: { limits: { request: "500ms" } } },
    );
    const { id } = slow.begin("f", "f1", {});
    const call = await watched.next("a", id);
    const { status } = await refused(slow.command("f", id, "suspend", { reason: "wait" }));
    assert.equal(status, 503);
    call.release({ a: 1 });
    await until(async () => (await slow.state("f", id)).status === "suspended", "the suspension");
    assert.equal((await slow.state("f", id)).suspension!.reason, "wait");
    assert.deepEqual((await slow.resume("f", id)).result, { a: 1 });
  });
});
