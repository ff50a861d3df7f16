/** `POST /workflows/:id/executions/:executionId/resume` of a step that waits while others of its execution run. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { until, watchProbe } from "../support/probe.ts";
import { dataOf, refused, resultOf, startWorkflows, told } from "../support/workflow-service.ts";

const set = (id: string, value: unknown) => ({ id, andThen: { set: value } });
const probe = (id: string, config: object = {}) => ({ id, andThen: { use: "probe", with: config } });
const ask = (id: string, data?: unknown) => ({ id, andThen: { suspend: { reason: `${id}?`, data } } });
const HELD = { hold: true };
const OK = { type: "object", required: ["ok"] };

const race = (first: object | object[], ...others: object[]) => ({
  steps: [{ id: "race", andRace: [first, ...others, probe("timer", HELD)] }, set("last", { won: "{{ data }}" })],
});

const client = await startWorkflows(null, {
  deadline: race([{ ...ask("ask", { amount: 7 }), resumeSchema: OK }, probe("after")]),
  sub: race({ id: "sub", timeout: "1h", andWorkflow: { workflow: "inner" } }),
  inner: { steps: [probe("in"), { id: "all", andAll: [ask("one"), ask("two")] }] },
  retried: race({ id: "all", timeout: "1h", retry: { attempts: 1 }, andAll: [ask("ask"), probe("b")] }),
  twice: race([probe("asks", { asks: "again?", times: 2 })]),
  both: {
    steps: [
      {
        id: "all",
        andAll: [
          [ask("a"), probe("a2", HELD)],
          [ask("b"), set("b2", { b: "{{ data }}" })],
        ],
      },
    ],
  },
  plain: { steps: [probe("a", HELD)] },
});

let executions = 0;
/** An execution that waits at `path` while `timer` runs. */
async function waiting(t: Parameters<typeof watchProbe>[0], workflow: string, path: string) {
  const watched = watchProbe(t);
  const id = `${workflow}-${++executions}`;
  const { reply } = client.begin(workflow, id, { n: 1 });
  const timer = await watched.next("timer", id);
  await until(async () => (await client.state(workflow, id)).suspension?.stepId === path, `the wait at ${path}`);
  return { id, reply, timer, watched };
}

const resume = (workflow: string, id: string, stepId: string | undefined, resumeData?: unknown) =>
  client.command(workflow, id, "resume", { resumeData, options: { stepId } });

describe("POST .../resume of a step in andRace while a timer runs", () => {
  test("POST .../resume: the person who answers wins, and the timer is stopped; execute and resume answer the same", async (t) => {
    const { id, reply, timer, watched } = await waiting(t, "deadline", "ask");
    const state = await client.state("deadline", id);
    assert.deepEqual(
      [state.status, state.suspension!.reason, state.suspension!.stepIndex, state.suspension!.suspendData],
      ["running", "ask?", 0, { amount: 7 }],
    );
    const result = await resultOf(resume("deadline", id, "ask", { ok: true }));
    assert.deepEqual([result.status, result.result], ["completed", { won: { n: 1, ok: true } }]);
    assert.deepEqual(await dataOf(reply), JSON.parse(JSON.stringify(result)));
    assert.ok(timer.aborted instanceof Error);
    assert.deepEqual(watched.paths(id).sort(), ["after", "timer"]);
    assert.equal((await client.state("deadline", id)).suspension, undefined);
    const events = told(await client.events("deadline", id));
    assert.equal(events.filter((line) => line === "workflow-start").length, 2);
    assert.equal(events.at(-1), "workflow-result");
  });
  test("POST .../resume after the timer has won is 404: nobody waits any more", async (t) => {
    const { id, reply, timer } = await waiting(t, "deadline", "ask");
    timer.release("too late");
    assert.deepEqual((await dataOf(reply)).result, { won: "too late" });
    assert.equal((await refused(resume("deadline", id, "ask", { ok: true }))).status, 404);
  });
  test("POST .../resume: data that does not fit is 400, an unknown step too, and the step goes on waiting", async (t) => {
    const { id, reply } = await waiting(t, "deadline", "ask");
    const wrong = await refused(resume("deadline", id, "ask", { no: 1 }));
    assert.deepEqual([wrong.status, wrong.error], [400, "resumeData.ok is required"]);
    assert.equal((await refused(resume("deadline", id, "asks", {}))).status, 400);
    const unnamed = await refused(resume("deadline", id, undefined, { ok: 1 }));
    assert.equal(unnamed.status, 404);
    assert.match(unnamed.error, /it is running; name in options\.stepId which step you mean: ask$/);
    assert.equal((await refused(resume("deadline", id, "timer", {}))).status, 404, "it does not wait");
    await resultOf(resume("deadline", id, "ask", { ok: 1 }));
    await dataOf(reply);
  });
  test("POST .../resume of steps in a sub-workflow with a time limit: each is given its own", async (t) => {
    const { id, reply, watched } = await waiting(t, "sub", "sub/one");
    const first = resume("sub", id, "sub/one", { one: 1 });
    await until(async () => (await client.state("sub", id)).suspension?.stepId === "sub/two", "the other");
    const result = await resultOf(resume("sub", id, "sub/two", { two: 2 }));
    assert.deepEqual(result.result, { won: { n: 1, one: 1, two: 2 } });
    await Promise.all([dataOf(first), dataOf(reply)]);
    assert.deepEqual(watched.paths(id).sort(), ["sub/in", "timer"]);
  });
  test("POST .../resume of a step in a container with tries and a time limit of its own", async (t) => {
    const { id, reply } = await waiting(t, "retried", "ask");
    const { result } = await resultOf(resume("retried", id, "ask", { ok: 1 }));
    assert.deepEqual(result, { won: { n: 1, ok: 1 } });
    await dataOf(reply);
  });
  test("POST .../resume of a step that waits again: it is given the second answer too", async (t) => {
    const { id, reply, watched } = await waiting(t, "twice", "asks");
    const first = resume("twice", id, "asks", "one");
    await until(() => watched.paths(id).length === 3, "the second question");
    await until(async () => (await client.state("twice", id)).suspension !== undefined, "the second wait");
    const { result } = await resultOf(resume("twice", id, "asks", "two"));
    assert.deepEqual(result, { won: { n: 1, answer: "two" } });
    await Promise.all([dataOf(first), dataOf(reply)]);
  });
  test("POST .../suspend and .../cancel while a step waits beside a timer: both stop it, and it can be resumed after the suspend", async (t) => {
    const { id, reply } = await waiting(t, "deadline", "ask");
    await dataOf(client.command("deadline", id, "suspend"));
    assert.equal((await dataOf(reply)).status, "suspended");
    const result = await resultOf(resume("deadline", id, "ask", { ok: 1 }));
    assert.deepEqual(result.result, { won: { n: 1, ok: 1 } });
    const other = await waiting(t, "deadline", "ask");
    await dataOf(client.command("deadline", other.id, "cancel"));
    assert.equal((await refused(resume("deadline", other.id, "ask", { ok: 1 }))).status, 404);
  });
});

describe("POST .../resume sent while another resume is worked on", () => {
  /** Suspended at `a` and `b`, then resumed at `a`, which is at work now. */
  async function working(t: Parameters<typeof watchProbe>[0]) {
    const watched = watchProbe(t);
    const { executionId: id, suspension } = await client.execute("both", {});
    assert.equal(suspension?.stepId, "a");
    const first = resume("both", id, "a", { a: 1 });
    const held = await watched.next("a2", id);
    return { id, first, held };
  }
  test("POST .../resume of the same step: 409 when it is named, 404 when it is not; the first goes on", async (t) => {
    const { id, first, held } = await working(t);
    const again = await refused(resume("both", id, "a", { a: 2 }));
    assert.deepEqual([again.status, again.error], [409, 'options.stepId: step "a" has been resumed already']);
    assert.equal((await refused(resume("both", id, undefined, { a: 3 }))).status, 404);
    held.release({ a: 1 });
    assert.equal((await resultOf(first)).suspension?.stepId, "b");
  });
  test("POST .../resume of another step that waits is taken at once, and both are told the result", async (t) => {
    const { id, first, held } = await working(t);
    const second = resume("both", id, "b", { b: 2 });
    await until(async () => (await client.state("both", id)).suspension === undefined, "the second resume");
    held.release({ a: 1 });
    const results = await Promise.all([resultOf(first), resultOf(second)]);
    for (const { status, result } of results) assert.deepEqual([status, result], ["completed", { a: 1, b: { b: 2 } }]);
  });
  test("POST .../resume of two steps at once: both are taken, whichever comes first", async (t) => {
    for (let round = 0; round < 10; round++) {
      const watched = watchProbe(t);
      const { executionId: id } = await client.execute("both", {});
      const replies = [resume("both", id, "b", { b: 2 }), resume("both", id, "a", { a: 1 })];
      (await watched.next("a2", id)).release({ a: 1 });
      const results = await Promise.all(replies.map(resultOf));
      assert.equal(results.at(-1)!.executionId, id);
      assert.deepEqual((await client.state("both", id)).status, "completed");
      assert.deepEqual((await client.record(id)).output, { a: 1, b: { b: 2 } });
    }
  });
  test("POST .../resume of an execution that runs and where nothing waits is 404", async (t) => {
    const watched = watchProbe(t);
    const { id, reply } = client.begin("plain", "plain-1");
    const call = await watched.next("a", id);
    const { status, error } = await refused(resume("plain", id, undefined));
    assert.deepEqual([status, error], [404, 'execution "plain-1" is not suspended: it is running']);
    assert.equal((await refused(resume("plain", id, "a"))).status, 404);
    call.release(1);
    await dataOf(reply);
  });
});
