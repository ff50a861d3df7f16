/** `POST /workflows/:id/executions/:executionId/replay`: of steps that were resumed, and data that does not fit the step. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { watchProbe } from "../support/probe.ts";
import { dataOf, refused, resultOf, startWorkflows } from "../support/workflow-service.ts";

const set = (id: string, value: unknown) => ({ id, andThen: { set: value } });
const probe = (id: string, config: object = {}) => ({ id, andThen: { use: "probe", with: config } });
const ask = (id: string) => ({ id, andThen: { suspend: { reason: `${id}?` } } });
const NUMBER = { type: "object", properties: { n: { type: "number" } }, required: ["n"] };
const YES = { type: "object", properties: { yes: { type: "boolean" } }, required: ["yes"] };

const client = await startWorkflows(null, {
  asking: {
    steps: [
      probe("a", { state: { a: 1 } }),
      probe("b", { hold: true, asks: "well?" }),
      probe("c", { state: { c: 1 } }),
    ],
  },
  inner: { resume: YES, steps: [{ ...probe("in"), inputSchema: NUMBER }, ask("own")] },
  typed: {
    resume: { type: "string" },
    steps: [
      { ...probe("first"), inputSchema: NUMBER },
      { ...ask("ask"), resumeSchema: YES },
      { id: "all", inputSchema: NUMBER, andAll: [{ ...set("left", { n: "{{ data.n }}" }), inputSchema: NUMBER }] },
      ask("plain"),
    ],
  },
  outer: { steps: [{ id: "sub", andWorkflow: { workflow: "inner", input: "{{ data }}" } }] },
});

const replay = (workflow: string, id: string, body: object) => client.command(workflow, id, "replay", body);

describe("a step that was resumed, and failed", () => {
  test("POST .../replay of a step that was resumed and failed: it has the payload on record, and with the state that it had set before it waited", async (t) => {
    const watched = watchProbe(t);
    const { id, reply } = client.begin("asking", "asking-1", { n: 1 });
    (await watched.next("b", id)).release();
    assert.equal((await resultOf(reply)).status, "suspended");
    const resuming = client.command("asking", id, "resume", { resumeData: { yes: 1 } });
    (await watched.next("b", id)).fail("the bank is down");
    assert.equal((await refused(resuming)).error, 'step "b": the bank is down');

    const replaying = replay("asking", id, { stepId: "b" });
    const again = await watched.next("b");
    assert.deepEqual(again.context.resumeData, { yes: 1 });
    assert.deepEqual(again.context.state, { a: 1, asked: 1 });
    again.release();
    const { executionId, status, result } = await resultOf(replaying);
    assert.deepEqual([status, result], ["completed", { n: 1, answer: { yes: 1 } }]);
    assert.deepEqual((await client.state("asking", executionId)).workflowState, { a: 1, asked: 1, c: 1 });

    const other = replay("asking", id, { stepId: "b", resumeData: "no" });
    const call = await watched.next("b");
    assert.deepEqual([call.context.resumeData, call.context.state], ["no", { a: 1, asked: 1 }]);
    call.release();
    assert.deepEqual((await resultOf(other)).result, { n: 1, answer: "no" });
  });
  test("POST .../replay of the replay of a step that was resumed, which failed too, has the payload all the same", async (t) => {
    const watched = watchProbe(t);
    const { id, reply } = client.begin("asking", "asking-2", { n: 1 });
    (await watched.next("b", id)).release();
    await dataOf(reply);
    const resuming = client.command("asking", id, "resume", { resumeData: { yes: 1 } });
    (await watched.next("b", id)).fail("down");
    await refused(resuming);
    const first = replay("asking", id, { stepId: "b" });
    (await watched.next("b")).fail("still down");
    const failed = await refused(first);
    assert.equal(failed.status, 500);
    const second = replay("asking", failed.headers.get("x-execution-id")!, { stepId: "b" });
    const call = await watched.next("b");
    assert.deepEqual([call.context.resumeData, call.context.state], [{ yes: 1 }, { a: 1, asked: 1 }]);
    call.release();
    assert.deepEqual((await resultOf(second)).result, { n: 1, answer: { yes: 1 } });
  });
  test("POST .../replay from a step before the one that was resumed: that one suspends again", async (t) => {
    const watched = watchProbe(t);
    const { id, reply } = client.begin("asking", "asking-3", { n: 1 });
    (await watched.next("b", id)).release();
    await dataOf(reply);
    const resuming = client.command("asking", id, "resume", { resumeData: { yes: 1 } });
    (await watched.next("b", id)).fail("down");
    await refused(resuming);
    const replaying = replay("asking", id, { stepId: "a" });
    const call = await watched.next("b");
    assert.deepEqual([call.context.resumeData, call.context.state], [undefined, { a: 1 }]);
    call.release();
    assert.equal((await resultOf(replaying)).status, "suspended");
  });
});

describe("data that does not fit the step is 400, and begins no execution", async () => {
  const { executionId: typed } = await client.execute("typed", { n: 1 });
  await client.resume("typed", typed, { yes: true });
  await client.resume("typed", typed, "fine");
  const { executionId: outer } = await client.execute("outer", { n: 1 });
  const cases: [workflow: string, id: string, body: object, message: RegExp][] = [
    ["typed", typed, { stepId: "first", inputData: {} }, /^inputData.*\bn\b/],
    ["typed", typed, { stepId: "first", inputData: null }, /^inputData must be object/],
    ["typed", typed, { stepId: "all", inputData: { n: "1" } }, /^inputData\.n must be number/],
    ["typed", typed, { stepId: "left", inputData: [] }, /^inputData must be object/],
    ["typed", typed, { stepId: "ask", resumeData: "yes" }, /^resumeData must be object/],
    ["typed", typed, { stepId: "ask", resumeData: { yes: 1 } }, /^resumeData\.yes must be boolean/],
    ["typed", typed, { stepId: "plain", resumeData: 1 }, /^resumeData must be string/],
    ["outer", outer, { stepId: "sub/in", inputData: {} }, /^inputData.*\bn\b/],
    ["typed", typed, { stepId: "first", inputData: 1, resumeData: 1 }, /^inputData must be object; resumeData must be/],
  ];
  const count = async () => (await dataOf(client.service.get("/workflows/executions?limit=500"))).length;
  for (const [workflow, id, body, message] of cases) {
    test(`POST .../replay with ${JSON.stringify(body)} is 400 where it does not fit the step`, async (t) => {
      const watched = watchProbe(t);
      const before = await count();
      const { status, error, headers } = await refused(replay(workflow, id, body));
      assert.equal(status, 400);
      assert.match(error, message);
      assert.equal(headers.get("x-execution-id"), null);
      assert.deepEqual([await count(), watched.calls], [before, []]);
    });
  }
  test("POST .../replay takes data that fits the step", async () => {
    const { status, suspension } = await resultOf(replay("typed", typed, { stepId: "first", inputData: { n: 2 } }));
    assert.deepEqual([status, suspension?.stepId], ["suspended", "ask"]);
    const resumed = await resultOf(replay("typed", typed, { stepId: "ask", resumeData: { yes: false } }));
    assert.deepEqual([resumed.status, resumed.suspension?.stepId], ["suspended", "plain"]);
  });
});
