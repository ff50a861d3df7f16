/** Contract, "Workflows" and "Errors": execute, what it answers, and how it refuses. */
import assert from "node:assert/strict";
import { before, describe, test } from "node:test";
import { watchProbe } from "../support/probe.ts";
import { dataOf, refused, startWorkflows } from "../support/workflow-service.ts";

const WORKFLOWS = {
  add: {
    input: { type: "object", properties: { n: { type: "number" } }, required: ["n"] },
    steps: [
      { id: "one", andThen: { set: { n: "{{ input.n + 1 }}" } } },
      { id: "two", andThen: { use: "probe" } },
      { id: "three", andThen: { set: { n: "{{ data.n * 2 }}" } } },
    ],
  },
  broken: {
    steps: [
      { id: "fine", andThen: { set: { a: 1 } } },
      { id: "wrong", name: "Goes wrong", andThen: { use: "probe", with: { fails: 9, message: "no paper left" } } },
      { id: "never", andThen: { use: "probe" } },
    ],
  },
  misfit: { result: { type: "object", required: ["total"] }, steps: [{ id: "one", andThen: { set: { a: 1 } } }] },
  held: { steps: [{ id: "hold", andThen: { use: "probe", with: { hold: true } } }] },
  tools: { steps: [{ id: "call", andThen: { tool: "fail" } }] },
};

const client = await startWorkflows(null, WORKFLOWS, { tools: { fail: { use: "fail" } } });

describe("POST /workflows/:id/execute", () => {
  test("POST /workflows/:id/execute answers with the result when the execution is completed, and has recorded it by then", async () => {
    const options = { userId: "ada", conversationId: "c1", metadata: { team: "sales" }, context: { a: 1 } };
    const result = await client.execute("add", { n: 1 }, options);
    assert.deepEqual([result.status, result.result], ["completed", { n: 4 }]);
    assert.ok(Date.parse(result.startAt) <= Date.parse(result.endAt!));
    assert.equal(result.suspension, undefined);
    const record = await client.record(result.executionId);
    assert.deepEqual(
      [record.workflowId, record.workflowName, record.status, record.userId, record.conversationId, record.metadata],
      ["add", "add", "completed", "ada", "c1", { team: "sales" }],
    );
    assert.deepEqual([record.input, record.output], [{ n: 1 }, { n: 4 }]);
    assert.deepEqual(
      record.events.map(({ type, from, status }: Record<string, string>) => `${type} ${from} ${status}`),
      [
        "workflow-start add running",
        "step-complete one success",
        "step-complete two success",
        "step-complete three success",
        "workflow-complete add success",
      ],
    );
    const state = await client.state("add", result.executionId);
    assert.deepEqual([state.status, state.context, state.workflowState], ["completed", { a: 1 }, {}]);
  });

  test("POST /workflows/:id/execute takes the id that a client chooses; taken once more it is 409, in another workflow too", async () => {
    const result = await client.execute("add", { n: 1 }, { executionId: "mine:1" });
    assert.equal(result.executionId, "mine:1");
    for (const workflow of ["add", "misfit"]) {
      const body = { input: { n: 1 }, options: { executionId: "mine:1" } };
      for (const path of ["execute", "stream"]) {
        const { status, error, headers } = await refused(client.service.post(`/workflows/${workflow}/${path}`, body));
        assert.deepEqual([status, error], [409, 'options.executionId: "mine:1" is taken']);
        assert.equal(headers.get("x-error-code"), "conflict");
      }
    }
  });

  test("POST /workflows/:id/execute: of twenty that choose the same id at once, one is run and the others are 409", async () => {
    const one = () =>
      client.service.post("/workflows/add/execute", { input: { n: 1 }, options: { executionId: "same" } });
    const replies = await Promise.all(Array.from({ length: 20 }, one));
    assert.deepEqual(replies.map(({ status }) => status).sort(), [200, ...Array(19).fill(409)]);
  });

  test("an id that looks like one of ours is the client's own", async () => {
    const { executionId } = await client.execute("add", { n: 1 });
    const chosen = `${executionId.slice(0, -1)}${executionId.endsWith("0") ? "1" : "0"}`;
    await client.execute("add", { n: 5 }, { executionId: chosen });
    assert.deepEqual((await client.record(chosen)).output, { n: 12 });
    assert.deepEqual((await client.record(executionId)).output, { n: 4 });
  });

  test("POST /workflows/:id/execute: input that fails the schema is 400 and leaves nothing behind", async () => {
    const before = (await dataOf(client.service.get("/workflows/executions?limit=500"))).length;
    const body = { input: { n: "x" }, options: { executionId: "bad" } };
    const { status, error } = await refused(client.service.post("/workflows/add/execute", body));
    assert.deepEqual([status, error], [400, "input.n must be number"]);
    assert.equal((await dataOf(client.service.get("/workflows/executions?limit=500"))).length, before);
    await client.execute("add", { n: 1 }, { executionId: "bad" });
  });

  test("POST /workflows/:id/execute of an unknown workflow is 404", async () => {
    const { status, error } = await refused(client.service.post("/workflows/nope/execute", { input: 1 }));
    assert.deepEqual([status, error], [404, 'workflow "nope" does not exist']);
  });

  test("POST /workflows/:id/execute: a step that fails is a 500 with what it said and x-execution-id; the record has the error and its step", async (t) => {
    const probe = watchProbe(t);
    const { status, error, headers } = await refused(client.service.post("/workflows/broken/execute", { input: 1 }));
    assert.deepEqual([status, error], [500, 'step "wrong": no paper left']);
    assert.equal(headers.get("x-error-code"), "step_failed");
    const id = headers.get("x-execution-id")!;
    const record = await client.record(id);
    assert.deepEqual([record.status, record.error], ["error", { message: "no paper left", stepId: "wrong" }]);
    assert.equal(record.output, undefined);
    assert.deepEqual(
      record.events.map(({ type, status: how }: Record<string, string>) => `${type} ${how}`),
      ["workflow-start running", "step-complete success", "step-error error", "workflow-error error"],
    );
    assert.deepEqual((await client.state("broken", id)).error, { message: "no paper left", stepId: "wrong" });
    assert.deepEqual(probe.paths(id), ["wrong"]);
  });

  test("POST /workflows/:id/execute: a tool that fails in a step says so in the same way", async () => {
    const { status, error } = await refused(client.service.post("/workflows/tools/execute", { input: {} }));
    assert.equal(status, 500);
    assert.match(error, /^step "call": .*the shop is closed/);
  });

  test("POST /workflows/:id/execute: a result that does not fit the result schema is a 500 without a step", async () => {
    const { status, error, headers } = await refused(client.service.post("/workflows/misfit/execute", { input: 1 }));
    assert.deepEqual([status, error], [500, "result.total is required"]);
    const record = await client.record(headers.get("x-execution-id")!);
    assert.deepEqual(record.error, { message: "result.total is required" });
  });

  test("the workflow is running while it runs, and idle afterwards", async (t) => {
    const probe = watchProbe(t);
    const statusOf = async () => (await dataOf(client.service.get("/workflows/held"))).status;
    assert.equal(await statusOf(), "idle");
    const { reply, id } = client.begin("held", "h1");
    const call = await probe.next("hold", "h1");
    assert.equal(await statusOf(), "running");
    const list = await dataOf(client.service.get("/workflows"));
    assert.equal(list.find((item: { id: string }) => item.id === "held").status, "running");
    assert.deepEqual((await client.state("held", id)).status, "running");
    assert.equal((await client.record(id)).status, "running");
    call.release({ a: 1 });
    assert.deepEqual((await dataOf(reply)).result, { a: 1 });
    assert.equal(await statusOf(), "idle");
  });

  test("POST /workflows/:id/execute: a client that leaves does not stop the execution", async (t) => {
    const probe = watchProbe(t);
    const controller = new AbortController();
    const body = JSON.stringify({ input: 1, options: { executionId: "left" } });
    const headers = { "content-type": "application/json" };
    const init = { method: "POST", headers, body, signal: controller.signal };
    const reply = fetch(`${client.service.url}/workflows/held/execute`, init);
    const call = await probe.next("hold", "left");
    controller.abort();
    await assert.rejects(reply);
    await new Promise((resolve) => setTimeout(resolve, 50));
    assert.equal(call.aborted, null);
    call.release("on its own");
    const events = await client.events("held", "left");
    assert.deepEqual(events.at(-1)!.event.result, "on its own");
  });
});

test("POST /workflows/:id/execute: no reply within limits.request is 503 with x-execution-id; the execution goes on", async (t) => {
  const watched = watchProbe(t);
  const slow = await startWorkflows(t, { held: WORKFLOWS.held }, { server: { limits: { request: "300ms" } } });
  const { status, headers } = await refused(slow.service.post("/workflows/held/execute", { input: 1 }));
  const id = headers.get("x-execution-id")!;
  assert.deepEqual([status, headers.get("retry-after")], [503, "1"]);
  assert.match(headers.get("access-control-expose-headers")!, /x-execution-id/);
  (await watched.next("hold", id)).release("late");
  const events = await slow.events("held", id);
  assert.equal(events.at(-1)!.event.result, "late");
});

describe("an execution of another workflow is 404", () => {
  before(async () => void (await client.execute("add", { n: 1 }, { executionId: "theirs" })));
  for (const [command, body] of [
    ["suspend", { reason: "x" }],
    ["resume", {}],
    ["cancel", {}],
    ["replay", { stepId: "one" }],
  ] as const) {
    test(`POST /workflows/:id/executions/:executionId/${command} of another workflow's execution is 404`, async () => {
      const { status, error } = await refused(client.command("misfit", "theirs", command, body));
      assert.deepEqual([status, error], [404, 'execution "theirs" does not exist']);
    });
  }
  for (const what of ["state", "stream"]) {
    test(`GET /workflows/:id/executions/:executionId/${what} of another workflow's execution is 404`, async () => {
      const { status } = await refused(client.service.get(`/workflows/misfit/executions/theirs/${what}`));
      assert.equal(status, 404);
    });
  }
});
