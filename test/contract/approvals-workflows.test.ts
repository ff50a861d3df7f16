/** A step whose tool needs approval: it suspends, and the answer alone lets it run. */
import assert from "node:assert/strict";
import { beforeEach, describe, type TestContext, test } from "node:test";
import { ran, serveApprovals } from "../support/approvals.ts";
import { until } from "../support/probe.ts";
import { dataOf, type Loose } from "../support/served-upstream.ts";
import type { TestService } from "../support/service.ts";

beforeEach(() => void ran.splice(0));

const step = (id: string, input: unknown = { amount: "{{ input.amount }}" }) => ({
  id,
  andThen: { tool: "pay", input },
});
const CLOSED = { type: "object", properties: { ok: { type: "boolean" } }, required: ["ok"] };
const WORKFLOWS = {
  one: { steps: [step("pay")] },
  // The schemas of its own suspensions are not those of an approval.
  strict: { suspend: CLOSED, resume: CLOSED, steps: [step("pay")] },
  two: {
    steps: [{ id: "both", andAll: [step("first", { amount: 1 }), step("second", { amount: 2 })] }],
  },
  outer: { steps: [{ id: "sub", andWorkflow: { workflow: "one", input: "{{ input }}" } }] },
  tap: {
    steps: [
      { id: "tap", andTap: { tool: "pay", input: { amount: 5 } } },
      { id: "end", andThen: { set: { n: 1 } } },
    ],
  },
  retried: { steps: [{ ...step("pay"), retry: { attempts: 3, delay: "1ms" } }] },
  asked: {
    steps: [
      { id: "ask", andThen: { suspend: { reason: "How much?" } } },
      step("pay", { amount: "{{ resume.amount }}" }),
    ],
  },
  sometimes: { steps: [step("pay")] },
  handled: {
    steps: [
      {
        ...step("first"),
        onError: [{ ...step("second"), onError: [{ id: "no", andThen: { set: { no: "{{ error.message }}" } } }] }],
      },
    ],
  },
};

const serve = (t: TestContext, pay: object = {}) => serveApprovals(t, { pay, workflows: WORKFLOWS });

async function begin(service: TestService, workflow: string, amount = 5): Promise<Loose> {
  return dataOf(service.post(`/workflows/${workflow}/execute`, { input: { amount } }));
}
const open = async (service: TestService): Promise<Loose[]> => dataOf(service.get("/approvals"));
const state = (service: TestService, workflow: string, id: string): Promise<Loose> =>
  dataOf(service.get(`/workflows/${workflow}/executions/${id}/state`));
async function ended(service: TestService, workflow: string, id: string): Promise<Loose> {
  let last: Loose;
  await until(async () => {
    last = await state(service, workflow, id);
    return !["running", "suspended"].includes(last.status);
  }, `the end of ${workflow}`);
  const executions: Loose[] = await dataOf(service.get(`/workflows/executions?workflowId=${workflow}`));
  return { ...last, output: executions.find((each) => each.id === id || each.executionId === id).output };
}
const answer = (service: TestService, id: string, body: object) => dataOf(service.post(`/approvals/${id}`, body));

for (const workflow of ["one", "strict", "retried"]) {
  test(`POST /workflows/:id/execute of "${workflow}": a step whose tool needs approval suspends, and the yes runs it`, async (t) => {
    const service = await serve(t);
    const { executionId, status, suspension } = await begin(service, workflow);
    const [{ approvalId, ...asked }] = await open(service);
    assert.deepEqual([status, suspension.reason], ["suspended", 'tool "pay" needs approval']);
    assert.deepEqual(suspension.suspendData, { approvalId, toolName: "pay", input: { amount: 5 } });
    assert.deepEqual([asked.workflowId, asked.executionId, asked.stepId], [workflow, executionId, "pay"]);
    assert.deepEqual(ran, []);
    await answer(service, approvalId, { approved: true });
    const { output: result } = await ended(service, workflow, executionId);
    assert.deepEqual(result, { paid: 5, key: `${executionId}:pay` });
    assert.deepEqual(ran, [5]);
  });
}

test("POST /approvals/:approvalId: a step in an onError needs approval too; a no is a failure that an onError handles", async (t) => {
  const service = await serve(t);
  const { executionId } = await begin(service, "handled");
  const said = async (reason: string) => {
    let asked: Loose[] = [];
    await until(async () => {
      asked = await open(service);
      return asked.length === 1;
    }, "the question");
    await answer(service, asked[0].approvalId, { approved: false, reason });
    return asked[0].stepId;
  };
  assert.deepEqual([await said("too early"), await said("too late")], ["first", "second"]);
  const { status, output } = await ended(service, "handled", executionId);
  assert.equal(status, "completed");
  assert.match(output.no, /too late/);
  assert.deepEqual(ran, []);
});

test("POST /approvals/:approvalId: a no is the error of the step, with its reason, and the step is not tried again", async (t) => {
  const service = await serve(t);
  const { executionId } = await begin(service, "retried");
  const [{ approvalId }] = await open(service);
  await answer(service, approvalId, { approved: false, reason: "too early" });
  const { status, error } = await ended(service, "retried", executionId);
  assert.deepEqual([status, error], ["error", { message: 'tool "pay" was refused: too early', stepId: "pay" }]);
  assert.deepEqual(ran, []);
});

test("POST /approvals/:approvalId: a step runs with the input of the answer", async (t) => {
  const service = await serve(t);
  const { executionId } = await begin(service, "one", 500);
  const [{ approvalId }] = await open(service);
  await answer(service, approvalId, { approved: true, input: { amount: 50 } });
  assert.equal((await ended(service, "one", executionId)).output.paid, 50);
  assert.deepEqual(ran, [50]);
});

test("POST /workflows/:id/executions/:executionId/resume: without an approval the step asks again, and does not run", async (t) => {
  const service = await serve(t);
  const { executionId } = await begin(service, "one");
  const [{ approvalId }] = await open(service);
  for (const body of [{}, { resumeData: { approved: true, approvalId } }, { resumeData: { input: { amount: 1 } } }]) {
    const { status, suspension } = await dataOf(service.post(`/workflows/one/executions/${executionId}/resume`, body));
    assert.deepEqual([status, suspension.suspendData.approvalId], ["suspended", approvalId]);
  }
  assert.equal((await open(service)).length, 1);
  assert.deepEqual(ran, []);
});

test("POST /workflows/:id/executions/:executionId/resume: with another input the step asks another question", async (t) => {
  const service = await serve(t);
  const { executionId } = await begin(service, "asked");
  const resume = (amount: number) =>
    dataOf(service.post(`/workflows/asked/executions/${executionId}/resume`, { resumeData: { amount } }));
  const first = (await resume(1)).suspension.suspendData;
  const second = (await resume(2)).suspension.suspendData;
  assert.deepEqual([first.input, second.input], [{ amount: 1 }, { amount: 2 }]);
  await answer(service, second.approvalId, { approved: true });
  assert.equal((await ended(service, "asked", executionId)).output.paid, 2, "the input is that of the earlier resume");
  assert.deepEqual(ran, [2]);
});

test("POST /approvals/:approvalId: of two branches each is answered for itself, in any order", async (t) => {
  const service = await serve(t);
  const { executionId } = await begin(service, "two");
  const asked = await open(service);
  assert.deepEqual(asked.map(({ stepId }) => stepId).sort(), ["first", "second"]);
  const of = (stepId: string) => asked.find((each) => each.stepId === stepId).approvalId;
  // Both at once: each resumes the execution when the other has been taken.
  await Promise.all([
    answer(service, of("second"), { approved: true }),
    answer(service, of("first"), { approved: true }),
  ]);
  assert.equal((await ended(service, "two", executionId)).status, "completed");
  assert.deepEqual(ran.sort(), [1, 2]);
});

test("POST /approvals/:approvalId: the answer resumes a step of a sub-workflow", async (t) => {
  const service = await serve(t);
  const { executionId } = await begin(service, "outer");
  const [{ approvalId, stepId, workflowId }] = await open(service);
  assert.deepEqual([workflowId, stepId], ["outer", "sub/pay"]);
  await answer(service, approvalId, { approved: true });
  assert.equal((await ended(service, "outer", executionId)).output.paid, 5);
});

test("POST /workflows/:id/execute: a tap asks nobody, and its tool does not run", async (t) => {
  const service = await serve(t);
  const { status, result } = await begin(service, "tap");
  assert.deepEqual([status, result, await open(service), ran], ["completed", { n: 1 }, [], []]);
});

test("POST /workflows/:id/execute: no answer in time fails the step", async (t) => {
  const service = await serve(t, { expires: "50ms" });
  const { executionId } = await begin(service, "one");
  // The list looks what has expired; without it that is noticed some seconds later.
  await until(async () => (await open(service)).length === 0, "the end of the question");
  const { status, error } = await ended(service, "one", executionId);
  assert.deepEqual([status, error.message], ["error", 'the approval of tool "pay" has expired']);
  assert.deepEqual(ran, []);
});

test("POST /workflows/:id/executions/:executionId/cancel: an answer to a cancelled execution is 409 and runs nothing", async (t) => {
  const service = await serve(t);
  const { executionId } = await begin(service, "one");
  const [{ approvalId }] = await open(service);
  await dataOf(service.post(`/workflows/one/executions/${executionId}/cancel`, {}));
  assert.equal((await service.post(`/approvals/${approvalId}`, { approved: true })).status, 409);
  const rows = await service.service.store.scan({ prefix: "ar/", limit: 10 });
  if (rows.length > 0)
    await until(
      async () => (await service.service.store.scan({ prefix: "ar/", limit: 10 })).length === 0,
      "the end of the waiting",
    );
  assert.equal((await state(service, "one", executionId)).status, "cancelled");
  assert.deepEqual(ran, []);
});

describe("POST /workflows/:id/execute with an expression", () => {
  test("a step whose call needs no approval runs at once, another suspends", async (t) => {
    const service = await serve(t, { approval: "{{ input.amount > 100 }}" });
    assert.equal((await begin(service, "sometimes", 100)).status, "completed");
    assert.equal((await begin(service, "sometimes", 101)).status, "suspended");
    assert.deepEqual(ran, [100]);
  });
});
