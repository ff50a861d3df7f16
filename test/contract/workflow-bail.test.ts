/** `bail`: a step that ends its workflow early, as completed. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { watchProbe } from "../support/probe.ts";
import { dataOf, refused, resultOf, startWorkflows, told } from "../support/workflow-service.ts";

const set = (id: string, value: unknown) => ({ id, andThen: { set: value } });
const probe = (id: string, config: object = {}) => ({ id, andThen: { use: "probe", with: config } });
const bail = (text = "data.n > 1", rest: object = { result: { early: "{{ data.n }}" } }) => ({
  id: "bail",
  bail: { if: text, ...rest },
});
const LAST = set("last", { late: "{{ data }}" });

const client = await startWorkflows(null, {
  plain: { steps: [probe("a"), bail(), probe("z"), LAST] },
  data: { steps: [bail("true", {}), probe("z")] },
  checked: { result: { type: "string" }, steps: [bail(), set("text", "fine")] },
  all: { steps: [{ id: "all", andAll: [probe("h", { hold: true }), [probe("a"), bail()]] }, LAST] },
  race: { steps: [{ id: "race", andRace: [[bail()], probe("h", { takes: 60_000 })] }, LAST] },
  deep: {
    steps: [
      { id: "all", andAll: [{ id: "when", andWhen: { if: "true", then: [{ id: "in", andAll: [bail()] }, LAST] } }] },
      probe("z"),
    ],
  },
  handler: { steps: [{ ...probe("b", { fails: 9 }), onError: [bail("error.stepId == 'b'")] }, probe("z")] },
  whole: { steps: [probe("b", { fails: 9 })], onError: [bail("true"), probe("z")] },
  outer: { steps: [{ id: "sub", andWorkflow: { workflow: "plain" } }, set("after", { sub: "{{ data }}" })] },
  outerAll: { steps: [{ id: "sub", andWorkflow: { workflow: "all" } }, set("after", { sub: "{{ data }}" })] },
  wrong: { steps: [{ ...bail("data.n.x"), onError: [set("mend", "{{ error.message }}")] }] },
  neither: { steps: [bail("data.n")] },
  waiting: {
    steps: [{ id: "all", andAll: [{ id: "ask", andThen: { suspend: { reason: "?" } } }, [probe("a"), bail()]] }],
  },
  asks: { steps: [{ id: "ask", andThen: { suspend: { reason: "?" } } }, bail("resume.stop"), LAST] },
});

const run = async (workflow: string, n: number) => {
  const { status, result } = await client.execute(workflow, { n });
  return [status, result];
};
const early = ["completed", { early: 2 }];

describe("POST /workflows/:id/execute: bail", () => {
  test("when its condition holds the execution is completed with its result; else data is passed on", async (t) => {
    const watched = watchProbe(t);
    assert.deepEqual(await run("plain", 2), early);
    assert.deepEqual(watched.paths(), ["a"]);
    assert.deepEqual(await run("plain", 1), ["completed", { late: { n: 1 } }]);
    assert.deepEqual(await run("data", 1), ["completed", { n: 1 }]);
  });
  test("its result has to fit the result schema of the workflow", async () => {
    const { status, error } = await refused(client.service.post("/workflows/checked/execute", { input: { n: 2 } }));
    assert.deepEqual([status, error], [500, "result must be string"]);
    assert.deepEqual(await run("checked", 1), ["completed", "fine"]);
  });
  test("in a branch of andAll or andRace it stops the others", async (t) => {
    const watched = watchProbe(t);
    const { executionId: id, status, result } = await client.execute("all", { n: 2 });
    assert.deepEqual([status, result], early);
    assert.ok((await watched.next("h", id)).aborted instanceof Error);
    const { events } = await client.record(id);
    const stands = events.map(({ from, status }: { from: string; status: string }) => [from, status]);
    assert.deepEqual(stands.slice(1, -1), [
      ["all", "cancelled"],
      ["h", "cancelled"],
      ["a", "success"],
      ["bail", "success"],
    ]);
    assert.deepEqual(await run("race", 2), early);
    assert.deepEqual(await run("race", 1), ["completed", { late: { n: 1 } }]);
    assert.deepEqual(await run("deep", 2), early);
  });
  test("in an onError, where it sees error", async () => {
    assert.deepEqual(await run("handler", 2), early);
    assert.deepEqual(await run("whole", 2), early);
  });
  test("in a sub-workflow it ends that alone", async () => {
    assert.deepEqual(await run("outer", 2), ["completed", { sub: { early: 2 } }]);
    assert.deepEqual(await run("outerAll", 2), ["completed", { sub: { early: 2 } }]);
  });
  test("a condition that cannot be computed, or gives no yes or no, fails the step", async () => {
    const [, message] = await run("wrong", 1);
    assert.match(String(message), /\{\{ data\.n\.x \}\}/);
    const { error } = await refused(client.service.post("/workflows/neither/execute", { input: { n: 1 } }));
    assert.match(error, /^step "bail": .*must give true or false, not a number/);
  });
});

describe("bail in the stream and under commands", () => {
  test("GET .../executions/:id/stream: its step-complete has the result; skipped when it does not hold", async () => {
    const ended = await client.events("plain", (await client.execute("plain", { n: 2 })).executionId);
    assert.deepEqual(told(ended).slice(-4), [
      "step-start bail",
      "step-complete bail",
      "workflow-complete",
      "workflow-result",
    ]);
    const { event } = ended.at(-3)!;
    assert.deepEqual([event.stepType, event.status, event.output], ["bail", "success", { early: 2 }]);
    const passed = await client.events("plain", (await client.execute("plain", { n: 1 })).executionId);
    const skipped = passed.find(({ type, from }) => type === "step-complete" && from === "bail")!;
    assert.deepEqual([skipped.event.status, skipped.event.output], ["skipped", { n: 1 }]);
  });
  test("POST .../resume: a step that waits in another branch does not keep it from ending", async () => {
    assert.deepEqual(await run("waiting", 2), early);
    const { executionId: id, status } = await client.execute("waiting", { n: 1 });
    assert.equal(status, "suspended");
    assert.equal((await client.resume("waiting", id, {})).status, "completed");
  });
  test("POST .../resume: what it was resumed with decides", async () => {
    for (const [stop, expected] of [
      [true, { early: 1 }],
      [false, { late: { n: 1, stop: false } }],
    ] as const) {
      const { executionId: id } = await client.execute("asks", { n: 1 });
      assert.deepEqual((await client.resume("asks", id, { stop })).result, expected);
    }
  });
  test("POST .../replay: from the bail and from a step before it, with another input it decides otherwise", async () => {
    const { executionId: id } = await client.execute("plain", { n: 2 });
    const replay = (body: object) => resultOf(client.command("plain", id, "replay", body));
    for (const stepId of ["a", "bail"]) {
      assert.deepEqual((await replay({ stepId })).result, { early: 2 });
      assert.deepEqual((await replay({ stepId, inputData: { n: 1 } })).result, { late: { n: 1 } });
    }
  });
  test("GET /workflows/:id: it is a step of type bail", async () => {
    const { steps } = await dataOf(client.service.get("/workflows/plain"));
    assert.equal(steps[1].type, "bail");
  });
});
