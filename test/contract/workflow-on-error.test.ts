/** `onError` of a step and of a workflow: the steps that run when it has failed, what they see, and what comes of them. */
import assert from "node:assert/strict";
import { after, describe, type TestContext, test } from "node:test";
import { pluginFolder } from "../support/plugin-folder.ts";
import { until, watchProbe } from "../support/probe.ts";
import { dataOf, refused, resultOf, startWorkflows, told } from "../support/workflow-service.ts";

const set = (id: string, value: unknown) => ({ id, andThen: { set: value } });
const probe = (id: string, config: object = {}) => ({ id, andThen: { use: "probe", with: config } });
const broken = (id: string, message = "no") => probe(id, { fails: 99, message });
const declined = (id: string) => ({ id, andThen: { tool: "decline" } });
const MEND = set("mend", { given: "{{ data }}", error: "{{ error }}" });
const COUNT = { id: "c", andThen: { use: "count-to", with: { until: 3 } } };

const PLUGINS = {
  "tools/decline.mjs": `export default { kind: "tool", parameters: { type: "object" },
    execute() { throw Object.assign(new Error("card refused"), { code: "declined" }); } };`,
  "steps/tells.mjs": `export default { kind: "step", execute: ({ data, error }) => ({ data, error }) };`,
};

const client = await startWorkflows(
  null,
  {
    step: { steps: [probe("a"), { ...broken("b"), onError: [MEND] }, set("last", { b: "{{ steps.b }}" })] },
    coded: { steps: [{ ...declined("b"), onError: [MEND] }] },
    plugin: {
      steps: [
        { id: "free", andThen: { use: "tells" } },
        { ...declined("b"), onError: [{ id: "tells", andThen: { use: "tells" } }] },
      ],
    },
    fine: { steps: [{ ...probe("a", { gives: 1 }), onError: [broken("mend")] }] },
    retried: { steps: [{ ...broken("b"), retry: { attempts: 2, delay: "1ms" }, onError: [probe("mend")] }] },
    mended: { steps: [{ ...COUNT, retry: { attempts: 2, delay: "1ms" }, onError: [broken("mend")] }] },
    limited: { steps: [{ ...probe("b", { takes: 60_000 }), timeout: "20ms", onError: [MEND] }] },
    limitedAll: {
      steps: [{ id: "all", timeout: "20ms", andAll: [probe("b", { takes: 60_000 })], onError: [MEND] }],
    },
    misfit: { steps: [{ ...probe("b"), outputSchema: { type: "string" }, onError: [set("mend", "text")] }] },
    misfitting: { steps: [{ ...probe("b"), outputSchema: { type: "string" }, onError: [set("mend", 1)] }] },
    failing: { steps: [probe("a"), { ...broken("b"), onError: [probe("c"), broken("mend", "nor this")] }, probe("z")] },
    nested: {
      steps: [
        {
          ...broken("b", "first"),
          onError: [
            { ...broken("c", "second"), onError: [set("d", "{{ error.message }}")] },
            set("e", ["{{ data }}", "{{ error.message }}"]),
          ],
        },
      ],
    },
    outward: {
      steps: [
        { id: "all", andAll: [{ ...broken("b"), onError: [broken("c", "nor this")] }], onError: [MEND] },
        set("last", "{{ steps.all }}"),
      ],
    },
    all: { steps: [{ id: "all", andAll: [[probe("a"), broken("b")], probe("h", { hold: true })], onError: [MEND] }] },
    race: { steps: [{ id: "race", andRace: [broken("a", "one"), broken("b", "two")], onError: [MEND] }] },
    branch: {
      steps: [
        { id: "all", andAll: [{ ...broken("b"), onError: [set("m", { m: 1 })] }, probe("a", { gives: { a: 1 } })] },
      ],
    },
    again: {
      steps: [
        {
          id: "all",
          retry: { attempts: 2, delay: "1ms" },
          andAll: [{ ...broken("b"), onError: [probe("paid"), COUNT] }],
        },
      ],
    },
    condition: { steps: [{ id: "gate", andWhen: { if: "data.no.where", then: probe("b") }, onError: [MEND] }] },
    inner: { steps: [broken("x", "deep")] },
    sub: { steps: [{ id: "sub", andWorkflow: { workflow: "inner" }, onError: [MEND] }] },
    own: { steps: [probe("a"), broken("x", "deep")], onError: [set("mend", ["{{ data }}", "{{ error.stepId }}"])] },
    ownSub: { steps: [{ id: "sub", andWorkflow: { workflow: "own", input: 7 } }, set("last", ["{{ data }}"])] },
    whole: {
      steps: [probe("a"), { id: "all", andAll: [broken("b")] }, probe("z")],
      onError: [set("mend", { data: "{{ data }}", error: "{{ error }}", a: "{{ steps.a }}" })],
    },
    wholeFails: { steps: [broken("b")], onError: [broken("mend", "nor this")] },
    result: { result: { type: "string" }, steps: [probe("a")], onError: [set("mend", "text")] },
    asking: {
      steps: [
        {
          id: "all",
          andAll: [{ id: "idle", andThen: { suspend: { reason: "idle" } } }, broken("b")],
          onError: [probe("m"), { id: "ask", andThen: { suspend: { reason: "{{ error.message }}" } } }, MEND],
        },
        set("last", { seen: "{{ steps.m }}", all: "{{ steps.all }}" }),
      ],
    },
    wholeAsking: {
      steps: [broken("b")],
      onError: [{ id: "ask", andThen: { suspend: { reason: "{{ error.message }}" } } }, MEND],
    },
    held: {
      steps: [{ ...broken("b"), onError: [probe("h", { hold: true, heeds: false }), probe("next")] }],
      onError: [probe("never")],
    },
    cancelled: { steps: [{ ...probe("h", { hold: true }), onError: [probe("never")] }], onError: [probe("nor")] },
    timed: {
      timeout: "40ms",
      steps: [{ ...probe("h", { hold: true }), onError: [probe("never")] }],
      onError: [probe("nor")],
    },
    replayed: {
      steps: [
        probe("a"),
        { id: "all", andAll: [[probe("x"), broken("b")]], onError: [probe("m"), MEND] },
        set("last", "{{ steps.all }}"),
      ],
    },
    wholeReplayed: {
      steps: [probe("a"), { id: "all", andAll: [probe("x"), broken("b")] }],
      onError: [probe("m"), MEND],
    },
  },
  { tools: { decline: { use: "decline" } } },
  { plugins: [pluginFolder({ after: after as TestContext["after"] }, PLUGINS)] },
);

const run = async (workflow: string, input: unknown = { n: 1 }) => (await client.execute(workflow, input)).result;
const failure = async (workflow: string) => {
  const reply = await refused(client.service.post(`/workflows/${workflow}/execute`, { input: { n: 1 } }));
  return { ...reply, id: reply.headers.get("x-execution-id")! };
};
const mended = (message: string, stepId: string, code: string | null = null, given: unknown = { n: 1 }) => ({
  given,
  error: { message, code, stepId },
});

describe("POST /workflows/:id/execute: onError of a step", () => {
  test("its output takes the place of what failed; error has message, code and stepId, data is what the step was given", async () => {
    assert.deepEqual(await run("step"), { b: mended("no", "b") });
    assert.deepEqual(await run("coded"), mended("card refused", "b", "declined"));
  });
  test("a step plugin in onError sees error, elsewhere null", async () => {
    assert.deepEqual(await run("plugin"), {
      data: { data: { n: 1 }, error: null },
      error: { message: "card refused", code: "declined", stepId: "b" },
    });
  });
  test("it does not run when the step succeeds", async () => {
    assert.equal(await run("fine"), 1);
  });
  test("the tries of the step come first", async (t) => {
    const watched = watchProbe(t);
    await run("retried");
    assert.deepEqual(watched.paths(), ["b", "b", "b", "mend"]);
    assert.deepEqual(await run("mended"), { n: 1, count: 3 });
  });
  test("the time limit of the step is a failure like any other", async () => {
    assert.deepEqual(await run("limited"), mended("timed out after 20ms", "b"));
    assert.deepEqual(await run("limitedAll"), mended("timed out after 20ms", "all"));
  });
  test("the step's outputSchema is for the output of onError too", async () => {
    assert.equal(await run("misfit"), "text");
    assert.equal((await failure("misfitting")).error, 'step "b": output must be string');
  });
  test("an onError that fails ends the execution with its error", async () => {
    const { status, error, id } = await failure("failing");
    assert.deepEqual([status, error], [500, 'step "mend": nor this']);
    assert.deepEqual(told(await client.events("failing", id)).slice(3), [
      "step-start b",
      "step-error b",
      "step-start c",
      "step-complete c",
      "step-start mend",
      "step-error mend",
      "workflow-error",
      "workflow-result",
    ]);
  });
  test("onError in an onError: the inner one first, then error is the outer one again", async () => {
    assert.deepEqual(await run("nested"), ["second", "first"]);
  });
  test("an onError that fails is handled by that of a container around it", async () => {
    assert.deepEqual(await run("outward"), mended("nor this", "c"));
  });
});

describe("POST /workflows/:id/execute: onError of a container", () => {
  test("a branch of andAll that fails stops the others, error names the step inside", async (t) => {
    const watched = watchProbe(t);
    assert.deepEqual(await run("all"), mended("no", "b"));
    assert.ok((await watched.next("h")).aborted instanceof Error);
  });
  test("andRace without a winner, a condition that cannot be computed, and a sub-workflow that fails", async () => {
    assert.deepEqual(await run("race"), mended("one", "a"));
    const { error } = (await run("condition")) as ReturnType<typeof mended>;
    assert.match(error.message, /there is no "no" in data/);
    assert.deepEqual(await run("sub"), mended("deep", "sub/x"));
  });
  test("onError of a step in a branch keeps the branch going", async () => {
    assert.deepEqual(await run("branch"), { m: 1, a: 1 });
  });
  test("retry of a container tries the failed step again, and not what has succeeded in its onError", async (t) => {
    const watched = watchProbe(t);
    assert.deepEqual(await run("again"), { n: 1, count: 3 });
    assert.deepEqual(watched.paths(), ["b", "paid", "c", "b", "c", "b", "c"]);
  });
});

describe("POST /workflows/:id/execute: onError of a workflow", () => {
  test("its output is the result; data is the input of the workflow, steps has what was done", async () => {
    assert.deepEqual(await run("whole"), {
      data: { n: 1 },
      error: { message: "no", code: null, stepId: "b" },
      a: { n: 1 },
    });
  });
  test("that of a sub-workflow gives the output of the step that runs it", async () => {
    assert.deepEqual(await run("ownSub"), [[7, "sub/x"]]);
  });
  test("one that fails ends the execution; a result that does not fit is not handled", async () => {
    assert.equal((await failure("wholeFails")).error, 'step "mend": nor this');
    assert.equal((await failure("result")).error, "result must be string");
  });
});

describe("onError in the stream, the record and the description of a workflow", () => {
  test("GET .../executions/:id/stream: the step fails, its onError runs, the step is complete; the record has output and error", async () => {
    const { executionId: id } = await client.execute("step", { n: 1 });
    assert.deepEqual(told(await client.events("step", id)), [
      "workflow-start",
      "step-start a",
      "step-complete a",
      "step-start b",
      "step-error b",
      "step-start mend",
      "step-complete mend",
      "step-complete b",
      "step-start last",
      "step-complete last",
      "workflow-complete",
      "workflow-result",
    ]);
    const { events } = await client.record(id);
    const [b] = events.filter(({ from }: { from: string }) => from === "b");
    assert.deepEqual(
      [b.type, b.status, b.error, b.output],
      ["step-complete", "success", { message: "no", stepId: "b" }, mended("no", "b")],
    );
  });
  test("GET .../executions/:id/stream: what a workflow's onError handles stays a step-error, and the steps of onError have places behind the others", async () => {
    const { executionId: id } = await client.execute("whole", { n: 1 });
    const events = await client.events("whole", id);
    assert.deepEqual(told(events).slice(-6), [
      "step-error b",
      "step-error all",
      "step-start mend",
      "step-complete mend",
      "workflow-complete",
      "workflow-result",
    ]);
    assert.equal(events.find(({ from }) => from === "mend")!.event.stepIndex, 3);
  });
  test("GET /workflows/:id: steps and workflow have their onError", async () => {
    const { steps } = await dataOf(client.service.get("/workflows/step"));
    assert.deepEqual(
      steps[1].onError.map(({ id, type }: { id: string; type: string }) => [id, type]),
      [["mend", "andThen"]],
    );
    const { steps: held, stepsCount } = await dataOf(client.service.get("/workflows/limitedAll"));
    assert.deepEqual(
      [stepsCount, held[0].branches, held[0].steps.length, held[0].onError[0].id],
      [1, [["b"]], 1, "mend"],
      "they are neither steps of the workflow nor a branch",
    );
    const { onError } = await dataOf(client.service.get("/workflows/whole"));
    assert.deepEqual(
      onError.map(({ id }: { id: string }) => id),
      ["mend"],
    );
  });
});

describe("onError and commands", () => {
  test("POST .../resume: a step in onError waits alone, what waited beside the failure does not", async () => {
    const { executionId: id, status, suspension } = await client.execute("asking", { n: 1 });
    assert.deepEqual([status, suspension?.reason, suspension?.stepId], ["suspended", "no", "ask"]);
    const other = await refused(client.command("asking", id, "resume", { options: { stepId: "idle" } }));
    assert.match(other.error, /step "idle" does not wait to be resumed; waiting: ask/);
    const { result } = await client.resume("asking", id, { yes: true });
    const given = { n: 1, yes: true };
    assert.deepEqual(result, { seen: { n: 1 }, all: mended("no", "b", null, given) });
  });
  test("POST .../resume: a step in a workflow's onError", async () => {
    const { executionId: id } = await client.execute("wholeAsking", { n: 1 });
    assert.deepEqual((await client.resume("wholeAsking", id, {})).result, mended("no", "b"));
  });
  test("POST .../suspend and resume: what has failed is not tried again", async (t) => {
    const watched = watchProbe(t);
    const { id, reply } = client.begin("held", "held-1", { n: 1 });
    const first = await watched.next("h", id);
    const suspending = dataOf(client.command("held", id, "suspend"));
    await until(() => first.aborted !== null, "the signal");
    first.release({ mended: 1 });
    await suspending;
    assert.equal((await resultOf(reply)).status, "suspended");
    assert.deepEqual((await client.resume("held", id)).result, { mended: 1 });
    assert.deepEqual(watched.paths(id), ["b", "h", "next"]);
  });
  test("POST .../cancel: neither onError runs, nor for the time limit of the execution", async (t) => {
    const watched = watchProbe(t);
    const { id, reply } = client.begin("cancelled", "cancelled-1");
    await watched.next("h", id);
    await dataOf(client.command("cancelled", id, "cancel"));
    assert.equal((await resultOf(reply)).status, "cancelled");
    const timed = await failure("timed");
    assert.equal(timed.error, "the workflow timed out after 40ms");
    assert.deepEqual([watched.paths(id), watched.paths(timed.id)], [["h"], ["h"]]);
  });
  for (const [workflow, expected] of [
    ["replayed", { m: ["m"], mend: [], x: ["x", "b", "m"], all: ["x", "b", "m"], last: [] }],
    ["wholeReplayed", { m: ["m"], mend: [], x: ["x", "b", "m"], a: ["a", "x", "b", "m"] }],
  ] as const) {
    test(`POST .../replay from a step of ${workflow}: from one in an onError, what failed is taken over with its error`, async (t) => {
      const watched = watchProbe(t);
      const { executionId: id, result } = await client.execute(workflow, { n: 1 });
      for (const [stepId, paths] of Object.entries(expected)) {
        const replayed = await resultOf(client.command(workflow, id, "replay", { stepId }));
        assert.deepEqual(replayed.result, result, stepId);
        assert.deepEqual(watched.paths(replayed.executionId).sort(), [...paths].sort(), stepId);
      }
    });
  }
});
