/** Tries of steps, and time limits of steps, of steps that hold others, and of workflows. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { watchProbe } from "../support/probe.ts";
import { refused, startWorkflows, told } from "../support/workflow-service.ts";

const set = (id: string, value: unknown) => ({ id, andThen: { set: value } });
const probe = (id: string, config: object = {}) => ({ id, andThen: { use: "probe", with: config } });
const QUICK = { attempts: 2, delay: "1ms", backoff: "fixed" };

const client = await startWorkflows(
  null,
  {
    inherits: { retry: QUICK, steps: [probe("p", { fails: 2, gives: "third" })] },
    own: {
      retry: { attempts: 9, delay: "1ms" },
      steps: [{ ...probe("p", { fails: 9 }), retry: { attempts: 1, delay: "1ms" } }],
    },
    slower: {
      steps: [{ ...probe("p", { fails: 3 }), retry: { attempts: 3, delay: "150ms", backoff: "exponential" } }],
    },
    steady: { steps: [{ ...probe("p", { fails: 3 }), retry: { attempts: 3, delay: "150ms", backoff: "fixed" } }] },
    many: { steps: [{ ...probe("p", { fails: 30 }), retry: { attempts: 30, delay: "0ms", backoff: "fixed" } }] },
    tapped: { retry: QUICK, steps: [{ id: "p", andTap: { use: "probe", with: { fails: 2 } } }, set("last", "fine")] },
    certain: { retry: QUICK, steps: [{ id: "sum", andThen: { tool: "add" } }] },
    misfit: { retry: QUICK, steps: [{ ...probe("p", { gives: 1 }), outputSchema: { type: "string" } }] },
    short: { steps: [{ ...probe("p", { takes: 60_000 }), timeout: "20ms" }] },
    deaf: { steps: [{ ...probe("p", { hold: true, heeds: false }), timeout: "20ms" }] },
    again: { steps: [{ ...probe("p", { takes: 60_000 }), timeout: "10ms", retry: QUICK }] },
    whole: { timeout: "500ms", steps: [probe("a"), probe("b", { hold: true, heeds: false }), probe("c")] },
    sleeping: { timeout: "30ms", steps: [{ ...probe("p", { fails: 9 }), retry: { attempts: 9, delay: "1h" } }] },
    patient: { timeout: "600ms", steps: [probe("ask", { asks: "well?" }), probe("b", { takes: 10 })] },
    held: { steps: [{ id: "all", timeout: "300ms", andAll: [probe("a"), probe("b", { takes: 60_000 })] }] },
    holder: {
      steps: [
        {
          id: "all",
          retry: { attempts: 2, delay: "1ms" },
          andAll: [
            probe("a", { gives: { a: 1 } }),
            [probe("b"), { id: "c", andThen: { use: "count-to", with: { until: 3 } } }],
          ],
        },
      ],
    },
    hopeless: {
      steps: [
        {
          id: "all",
          retry: { attempts: 1, delay: "1ms" },
          andAll: [probe("a"), probe("b", { fails: 9, message: "no" })],
        },
      ],
    },
    race: {
      steps: [
        {
          id: "race",
          retry: QUICK,
          andRace: [{ id: "c", andThen: { use: "count-to", with: { until: 3 } } }, probe("b", { fails: 9 })],
        },
      ],
    },
    inner: { timeout: "20ms", steps: [probe("p", { takes: 60_000 })] },
    outer: { steps: [{ id: "sub", andWorkflow: { workflow: "inner", input: 1 } }] },
    sub: { steps: [set("one", 1), probe("b"), { id: "c", andThen: { use: "count-to", with: { until: 2 } } }] },
    resub: { steps: [{ id: "s", retry: QUICK, andWorkflow: { workflow: "sub", input: 1 } }] },
    long: { timeout: "40d", steps: [{ ...probe("p"), timeout: "30d" }] },
  },
  { tools: { add: { use: "add" } } },
);

const failure = async (workflow: string, input: unknown = null) => {
  const { status, error, headers } = await refused(client.service.post(`/workflows/${workflow}/execute`, { input }));
  assert.equal(status, 500);
  return { error, id: headers.get("x-execution-id")! };
};

describe("POST /workflows/:id/execute: tries of a step", () => {
  test("POST /workflows/:id/execute: the workflow's retry is the default; every try has its number and the same idempotencyKey", async (t) => {
    const watched = watchProbe(t);
    const { executionId, result } = await client.execute("inherits", 1);
    assert.equal(result, "third");
    assert.deepEqual(
      watched.calls.map(({ context }) => [context.attempt, context.idempotencyKey]),
      [1, 2, 3].map((attempt) => [attempt, `${executionId}:p`]),
    );
    assert.deepEqual(told(await client.events("inherits", executionId)), [
      "workflow-start",
      "step-start p",
      "step-complete p",
      "workflow-complete",
      "workflow-result",
    ]);
  });
  test("POST /workflows/:id/execute: retry of a step goes before the workflow's; attempts counts the tries after the first", async (t) => {
    const watched = watchProbe(t);
    assert.equal((await failure("own")).error, 'step "p": the probe is broken');
    assert.equal(watched.calls.length, 2);
  });
  for (const [workflow, backoff, pauses] of [
    ["slower", "exponential", [150, 300, 600]],
    ["steady", "fixed", [150, 150, 150]],
  ] as const) {
    test(`POST /workflows/:id/execute: a step with backoff ${backoff} pauses ${pauses.join(", ")} ms before its tries`, async (t) => {
      const timers = t.mock.method(globalThis, "setTimeout").mock;
      await client.execute(workflow);
      const begun = timers.calls.map(({ arguments: [, milliseconds] }) => milliseconds ?? 0);
      // A timer is set for what is left of the pause when it begins.
      for (const pause of pauses) {
        const near = begun.filter((each) => each > pause / 2 && each <= pause);
        assert.ok(near.length >= pauses.filter((each) => each === pause).length, `${pause} in ${begun}`);
      }
    });
  }
  test("POST /workflows/:id/execute: thirty tries of a step leave no listener behind", async (t) => {
    const warnings: Error[] = [];
    const warned = (warning: Error) => void warnings.push(warning);
    process.on("warning", warned);
    t.after(() => process.off("warning", warned));
    await client.execute("many");
    await new Promise((resolve) => setImmediate(resolve));
    assert.deepEqual(warnings, []);
  });
  test("POST /workflows/:id/execute: andTap tries again too", async (t) => {
    const watched = watchProbe(t);
    assert.equal((await client.execute("tapped")).result, "fine");
    assert.equal(watched.calls.length, 3);
  });
  test("POST /workflows/:id/execute: a step whose tool refuses its input fails at once, without another try", async () => {
    assert.match((await failure("certain", {})).error, /^step "sum": .*a is required/);
  });
  test("POST /workflows/:id/execute: a step whose output does not fit its schema is tried again", async (t) => {
    const watched = watchProbe(t);
    assert.equal((await failure("misfit")).error, 'step "p": output must be string');
    assert.equal(watched.calls.length, 3);
  });
});

describe("POST /workflows/:id/execute: time limits of steps", () => {
  test("timeout of a step: it is stopped by its signal, and fails", async (t) => {
    const watched = watchProbe(t);
    const { error, id } = await failure("short");
    assert.equal(error, 'step "p": timed out after 20ms');
    assert.ok((await watched.next("p", id)).aborted instanceof Error);
  });
  test("timeout of a step that does not listen to its signal: it is left alone, and what it gives later is nothing", async (t) => {
    const watched = watchProbe(t);
    const { error, id } = await failure("deaf");
    assert.equal(error, 'step "p": timed out after 20ms');
    (await watched.next("p", id)).release("late");
    await new Promise((resolve) => setTimeout(resolve, 10));
    assert.equal((await client.state("deaf", id)).status, "error");
  });
  test("timeout of a step: each try has the whole of it", async (t) => {
    const watched = watchProbe(t);
    assert.equal((await failure("again")).error, 'step "p": timed out after 10ms');
    assert.equal(watched.calls.length, 3);
  });
  test("timeout of a workflow: whatever runs is given up", async (t) => {
    const watched = watchProbe(t);
    const { error, id } = await failure("whole");
    assert.equal(error, "the workflow timed out after 500ms");
    assert.deepEqual(watched.paths(id), ["a", "b"]);
    assert.deepEqual((await client.record(id)).error, { message: "the workflow timed out after 500ms" });
  });
  test("timeout of a workflow: it ends while a step waits for another try, too", async () => {
    assert.equal((await failure("sleeping")).error, "the workflow timed out after 30ms");
  });
  test("timeout of a workflow: the time that it is suspended does not count", async () => {
    await client.execute("patient", {}, { executionId: "patient" });
    await new Promise((resolve) => setTimeout(resolve, 700));
    assert.equal((await client.resume("patient", "patient", 1)).status, "completed");
  });
  test("timeout of a step that holds others: all of them are stopped, and it fails", async (t) => {
    const watched = watchProbe(t);
    const { error, id } = await failure("held");
    assert.equal(error, 'step "all": timed out after 300ms');
    assert.ok((await watched.next("b", id)).aborted instanceof Error);
  });
  test("timeout of a sub-workflow: its own is that of the step", async () => {
    assert.equal((await failure("outer")).error, 'step "sub": timed out after 20ms');
  });
  test("timeout longer than a timer of Node.js lasts: the execution does not end at once", async () => {
    assert.equal((await client.execute("long")).status, "completed");
  });
});

describe("tries of a step that holds others", () => {
  test("retry of a step that holds others: what succeeded inside is not done again", async (t) => {
    const watched = watchProbe(t);
    const { executionId, result } = await client.execute("holder", { n: 1 });
    assert.deepEqual(result, { a: 1, n: 1, count: 3 });
    assert.deepEqual(watched.paths(executionId).sort(), ["a", "b", "c", "c", "c"]);
  });
  test("retry of a step that holds others: the last failure is the execution's", async (t) => {
    const watched = watchProbe(t);
    const { error, id } = await failure("hopeless");
    assert.equal(error, 'step "b": no');
    assert.deepEqual(watched.paths(id), ["a", "b", "b"]);
  });
  test("retry of andRace: it is run again with all its branches", async (t) => {
    const watched = watchProbe(t);
    const { executionId, result } = await client.execute("race", { n: 1 });
    assert.deepEqual(result, { n: 1, count: 3 });
    assert.equal(watched.paths(executionId).filter((path) => path === "c").length, 3);
  });
  test("retry of andWorkflow: the sub-workflow goes on from where it failed", async (t) => {
    const watched = watchProbe(t);
    const { executionId, result } = await client.execute("resub");
    assert.deepEqual(result, { count: 2 });
    assert.deepEqual(watched.paths(executionId), ["s/b", "s/c", "s/c"]);
  });
});
