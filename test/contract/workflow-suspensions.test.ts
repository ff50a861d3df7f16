/** Contract, "States and transitions": steps that suspend, wherever they stand, and how they are resumed. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { watchProbe } from "../support/probe.ts";
import { dataOf, refused, startWorkflows, told } from "../support/workflow-service.ts";

const set = (id: string, value: unknown) => ({ id, andThen: { set: value } });
const probe = (id: string, config: object = {}) => ({ id, andThen: { use: "probe", with: config } });
const ask = (id: string, reason = `${id}?`, data?: unknown) => ({ id, andThen: { suspend: { reason, data } } });
const OBJECT = { type: "object", properties: { ok: { type: "boolean" } }, required: ["ok"] };

const client = await startWorkflows(null, {
  first: { steps: [ask("ask"), set("last", { got: "{{ data }}" })] },
  middle: {
    steps: [probe("a", { gives: { n: 1 } }), ask("ask", "n is {{ data.n }}", { n: "{{ data.n }}" }), probe("b")],
  },
  last: { steps: [probe("a"), ask("ask")] },
  plugin: { steps: [probe("a", { asks: "plugin asks", asksFor: { amount: 7 } }), probe("b")] },
  twice: {
    steps: [
      probe("a", { asks: "again", times: 2 }),
      ask("ask"),
      set("last", { data: "{{ data }}", resume: "{{ resume }}" }),
    ],
  },
  scope: {
    steps: [ask("ask"), set("one", "{{ resume.ok }}"), set("two", { one: "{{ steps.one }}", still: "{{ resume }}" })],
  },
  checked: {
    suspend: { type: "object", required: ["amount"] },
    resume: OBJECT,
    steps: [
      { ...ask("own", "own?", { amount: 1 }), resumeSchema: { type: "string" } },
      ask("flow", "flow?", { amount: 2 }),
    ],
  },
  careless: { suspend: { type: "object", required: ["amount"] }, steps: [ask("ask", "x", {})] },
  careful: { steps: [{ ...ask("ask", "x", { a: "b" }), suspendSchema: { properties: { a: { type: "number" } } } }] },
  all: {
    steps: [
      probe("before"),
      {
        id: "all",
        andAll: [probe("work", { takes: 15, gives: { work: 1 } }), [probe("pre"), ask("ask"), probe("post")]],
      },
      set("last", "{{ data }}"),
    ],
  },
  several: { steps: [{ id: "all", andAll: [ask("a"), [ask("b"), set("b2", { b2: "{{ data }}" })], ask("c")] }] },
  race: {
    steps: [
      { id: "race", andRace: [ask("ask"), probe("bad", { fails: 9, takes: 10 })] },
      set("last", { won: "{{ data }}" }),
    ],
  },
  raced: { steps: [{ id: "race", andRace: [ask("ask"), probe("good", { takes: 10, gives: "good" })] }, ask("later")] },
  races: {
    steps: [{ id: "race", andRace: [ask("a"), [ask("b"), set("b2", { b: "{{ data }}" })]] }, set("last", "{{ data }}")],
  },
  left: {
    steps: [
      { id: "race", andRace: [{ id: "all", andAll: [ask("a"), probe("bad", { fails: 1, takes: 5 })] }, ask("b")] },
      set("last", { won: "{{ data }}" }),
    ],
  },
  when: {
    steps: [
      { id: "gate", andWhen: { if: "data.n > 0", then: [probe("in"), ask("ask"), probe("out")] } },
      set("last", "{{ data }}"),
    ],
  },
  inner: {
    resume: OBJECT,
    suspend: { type: "object" },
    steps: [probe("in"), ask("ask", "inner?", {}), set("out", { from: "{{ input }}", ok: "{{ data.ok }}" })],
  },
  outer: {
    resume: { type: "string" },
    steps: [probe("a"), { id: "sub", andWorkflow: { workflow: "inner" } }, probe("b")],
  },
  deep: {
    steps: [
      {
        id: "race",
        andRace: [
          {
            id: "all",
            andAll: [
              probe("x", { gives: { x: 1 } }),
              { id: "gate", andWhen: { if: "true", then: { id: "sub", andWorkflow: { workflow: "inner" } } } },
            ],
          },
          probe("bad", { fails: 9 }),
        ],
      },
    ],
  },
  retried: { retry: { attempts: 1, delay: "1ms" }, steps: [probe("a", { asks: "ok?", fails: 1 })] },
  held: {
    steps: [{ id: "all", timeout: "10s", retry: { attempts: 1, delay: "1ms" }, andAll: [ask("ask"), probe("b")] }],
  },
  failing: { steps: [ask("ask"), probe("b", { fails: 1 })] },
  reasons: { steps: [probe("a", { asks: 'quotes " and \\ and \n lines ☃' })] },
});

const suspend = async (workflow: string, input: unknown = {}) => {
  const result = await client.execute(workflow, input);
  assert.deepEqual([result.status, result.result, result.endAt], ["suspended", null, null]);
  return { id: result.executionId, suspension: result.suspension! };
};

describe("POST /workflows/:id/execute and .../resume: a step that suspends", () => {
  for (const [workflow, input, index, reason, handed, result] of [
    ["first", { a: 1 }, 0, "ask?", undefined, { got: { a: 1, ok: true } }],
    ["first", "text", 0, "ask?", undefined, { got: { ok: true } }],
    ["middle", {}, 1, "n is 1", { n: 1 }, { n: 1, ok: true }],
    ["last", { a: 1 }, 1, "ask?", undefined, { a: 1, ok: true }],
    ["plugin", { a: 1 }, 0, "plugin asks", { amount: 7 }, { a: 1, answer: { ok: true } }],
    ["when", { n: 1 }, 0, "ask?", undefined, { n: 1, ok: true }],
  ] as const) {
    test(`${workflow} of ${JSON.stringify(input)}: suspended, resumed, completed; nothing is done twice`, async (t) => {
      const watched = watchProbe(t);
      const { id, suspension } = await suspend(workflow, input);
      assert.deepEqual(
        [suspension.suspendedStepIndex, suspension.reason, suspension.suspendData],
        [index, reason, handed],
      );
      const state = await client.state(workflow, id);
      const { stepIndex, stepId, reason: why, suspendedAt } = state.suspension!;
      assert.deepEqual(
        [state.status, stepIndex, why, suspendedAt],
        ["suspended", index, reason, suspension.suspendedAt],
      );
      assert.equal(stepId, suspension.stepId);
      assert.equal((await client.record(id)).status, "suspended");
      const resumed = await client.resume(workflow, id, { ok: true });
      assert.deepEqual([resumed.executionId, resumed.status, resumed.result], [id, "completed", result]);
      assert.equal(resumed.startAt, state.startAt);
      assert.equal((await client.record(id)).status, "completed");
      assert.equal((await client.state(workflow, id)).suspension, undefined);
      const paths = watched.paths(id);
      assert.deepEqual([...new Set(paths)].length, paths.length - (workflow === "plugin" ? 1 : 0));
    });
  }

  test("POST .../resume: data that is no object takes the place of what the step was given", async () => {
    for (const [resumeData, result] of [
      ["yes", { got: "yes" }],
      [0, { got: 0 }],
      [null, { got: null }],
      [[1], { got: [1] }],
      [undefined, { got: { a: 1 } }],
    ]) {
      const { id } = await suspend("first", { a: 1 });
      assert.deepEqual((await client.resume("first", id, resumeData)).result, result);
    }
  });

  test("a step that suspends twice in a row, then the next step: each waits for a resume of its own", async (t) => {
    const watched = watchProbe(t);
    const { id } = await suspend("twice", { n: 1 });
    assert.equal((await client.resume("twice", id, "one")).suspension!.reason, "again");
    assert.equal((await client.resume("twice", id, "two")).suspension!.stepId, "ask");
    const { result } = await client.resume("twice", id, { three: 3 });
    assert.deepEqual(result, { data: { n: 1, answer: "two", three: 3 }, resume: { three: 3 } });
    assert.deepEqual(
      watched.calls.map(({ context }) => context.resumeData),
      [undefined, "one", "two"],
    );
  });

  test("`resume` stays in scope for the steps that follow", async () => {
    const { id } = await suspend("scope");
    assert.deepEqual((await client.resume("scope", id, { ok: 7 })).result, { one: 7, still: { ok: 7 } });
  });

  test("POST .../resume without data: the step plugin sees null", async (t) => {
    const watched = watchProbe(t);
    const { id } = await suspend("plugin", {});
    await client.resume("plugin", id);
    assert.deepEqual(
      watched.calls.map(({ context }) => context.resumeData),
      [undefined, null, undefined],
    );
  });

  test("the tries of a step begin anew after the resume", async (t) => {
    const watched = watchProbe(t);
    const { id } = await suspend("retried");
    await client.resume("retried", id, "ok");
    assert.deepEqual(
      watched.calls.map(({ context }) => context.attempt),
      [1, 2, 1, 2],
    );
  });

  test("any text may be the reason of a suspension", async () => {
    const { id, suspension } = await suspend("reasons");
    assert.equal(suspension.reason, 'quotes " and \\ and \n lines ☃');
    assert.equal((await client.state("reasons", id)).suspension!.reason, suspension.reason);
    assert.equal((await client.events("reasons", id)).at(-1)!.event.suspension.reason, suspension.reason);
  });
});

describe("schemas of suspensions", () => {
  test("POST .../resume: the step's resumeSchema goes before the workflow's; data that does not fit is 400 and changes nothing", async () => {
    const { id } = await suspend("checked");
    for (const [data, message] of [
      [{ ok: true }, "resumeData must be string"],
      [undefined, "resumeData is required: resumeData must be string"],
    ] as const) {
      const { status, error } = await refused(client.command("checked", id, "resume", { resumeData: data }));
      assert.deepEqual([status, error], [400, message]);
    }
    assert.equal((await client.resume("checked", id, "yes")).suspension!.stepId, "flow");
    const { status, error } = await refused(client.command("checked", id, "resume", { resumeData: { ok: 1 } }));
    assert.deepEqual([status, error], [400, "resumeData.ok must be boolean"]);
    assert.equal((await client.state("checked", id)).status, "suspended");
    assert.deepEqual((await client.resume("checked", id, { ok: true })).result, { ok: true });
  });
  test("what a step hands out when it suspends must fit its suspendSchema, else it fails", async () => {
    for (const [workflow, message] of [
      ["careless", /^step "ask": suspend data\.amount is required$/],
      ["careful", /^step "ask": suspend data\.a must be number$/],
    ] as const) {
      const { status, error } = await refused(client.service.post(`/workflows/${workflow}/execute`, { input: {} }));
      assert.equal(status, 500);
      assert.match(error, message);
    }
  });
});

describe("branches that suspend", () => {
  test("andAll with a branch that suspends: the others finish and are kept", async (t) => {
    const watched = watchProbe(t);
    const { id, suspension } = await suspend("all", { n: 1 });
    assert.deepEqual([suspension.suspendedStepIndex, suspension.stepId], [1, "ask"]);
    assert.deepEqual(watched.paths(id), ["before", "work", "pre"]);
    assert.deepEqual((await client.resume("all", id, { ok: 1 })).result, { work: 1, n: 1, ok: 1 });
    assert.deepEqual(watched.paths(id), ["before", "work", "pre", "post"]);
  });
  test("andAll with several branches that suspend: the first in order is reported, the next after its resume", async () => {
    const { id, suspension } = await suspend("several", {});
    assert.equal(suspension.stepId, "a");
    assert.equal((await client.resume("several", id, { a: 1 })).suspension!.stepId, "b");
    assert.equal((await client.resume("several", id, { b: 1 })).suspension!.stepId, "c");
    assert.deepEqual((await client.resume("several", id, { c: 1 })).result, { a: 1, b2: { b: 1 }, c: 1 });
  });
  test("andAll with several branches that suspend: options.stepId chooses; a step that does not wait is 400", async () => {
    const { id } = await suspend("several", {});
    const { status, error } = await refused(client.command("several", id, "resume", { options: { stepId: "b2" } }));
    assert.deepEqual([status, error], [400, 'options.stepId: step "b2" does not wait to be resumed; waiting: a, b, c']);
    const unknown = await refused(client.command("several", id, "resume", { options: { stepId: "d" } }));
    assert.equal(unknown.status, 400);
    assert.match(unknown.error, /^options\.stepId: there is no step "d"/);
    assert.equal((await client.resume("several", id, { c: 1 }, { stepId: "c" })).suspension!.stepId, "a");
    assert.equal((await client.resume("several", id, { b: 1 }, { stepId: "b" })).suspension!.stepId, "a");
    assert.deepEqual((await client.resume("several", id, { a: 1 })).result, { a: 1, b2: { b: 1 }, c: 1 });
  });
  test("andRace with a branch that suspends waits when no other branch can succeed; one that failed is not run again", async (t) => {
    const watched = watchProbe(t);
    const { id, suspension } = await suspend("race", { n: 1 });
    assert.equal(suspension.stepId, "ask");
    assert.deepEqual((await client.resume("race", id, { ok: 1 })).result, { won: { n: 1, ok: 1 } });
    assert.deepEqual(watched.paths(id), ["bad"]);
  });
  test("andRace: a success goes before a branch that waits, which nobody can resume any more", async () => {
    const { id, suspension } = await suspend("raced", {});
    assert.equal(suspension.stepId, "later");
    const { status, error } = await refused(client.command("raced", id, "resume", { options: { stepId: "ask" } }));
    assert.deepEqual([status, error], [400, 'options.stepId: step "ask" does not wait to be resumed; waiting: later']);
    assert.deepEqual((await client.resume("raced", id)).result, null);
  });
  test("andRace with several branches that suspend: the one that is resumed wins", async () => {
    const { id, suspension } = await suspend("races", {});
    assert.equal(suspension.stepId, "a");
    assert.deepEqual((await client.resume("races", id, { x: 1 }, { stepId: "b" })).result, { b: { x: 1 } });
  });
  test("andRace: a step that waits in a branch that failed cannot be resumed", async (t) => {
    const watched = watchProbe(t);
    const { id, suspension } = await suspend("left", {});
    assert.equal(suspension.stepId, "b");
    const { status, error } = await refused(client.command("left", id, "resume", { options: { stepId: "a" } }));
    assert.deepEqual([status, error], [400, 'options.stepId: step "a" does not wait to be resumed; waiting: b']);
    assert.deepEqual((await client.resume("left", id, { ok: 1 })).result, { won: { ok: 1 } });
    assert.deepEqual(watched.paths(id), ["bad"]);
  });
  test("andWorkflow: resuming the parent resumes it, with the schemas of the sub-workflow", async (t) => {
    const watched = watchProbe(t);
    const { id, suspension } = await suspend("outer", { n: 1 });
    assert.deepEqual([suspension.suspendedStepIndex, suspension.stepId, suspension.reason], [1, "sub/ask", "inner?"]);
    const { status } = await refused(client.command("outer", id, "resume", { resumeData: "text" }));
    assert.equal(status, 400);
    const { result } = await client.resume("outer", id, { ok: true }, { stepId: "sub/ask" });
    assert.deepEqual(result, { from: { n: 1 }, ok: true });
    assert.deepEqual(watched.paths(id), ["a", "sub/in", "b"]);
  });
  test("a suspension in andWorkflow in andWhen in andAll in andRace is resumed where it stands", async (t) => {
    const watched = watchProbe(t);
    const { id, suspension } = await suspend("deep", { n: 1 });
    assert.deepEqual([suspension.suspendedStepIndex, suspension.stepId], [0, "sub/ask"]);
    assert.deepEqual((await client.resume("deep", id, { ok: true })).result, { x: 1, from: { n: 1 }, ok: true });
    assert.deepEqual(watched.paths(id).sort(), ["bad", "sub/in", "x"]);
  });
  test("a suspension in a step with retry and timeout of its own is resumed where it stands", async () => {
    const { id } = await suspend("held", {});
    assert.deepEqual((await client.resume("held", id, { ok: true })).result, { ok: true });
  });
});

describe("POST /workflows/:id/executions/:executionId/resume", () => {
  test("POST .../resume, two at once: one is 200, the other 404", async () => {
    for (let round = 0; round < 20; round++) {
      const { id } = await suspend("middle", {});
      const replies = await Promise.all(
        [1, 2].map((n) => client.command("middle", id, "resume", { resumeData: { n } })),
      );
      assert.deepEqual(replies.map(({ status }) => status).sort(), [200, 404]);
      const winner = replies.findIndex(({ status }) => status === 200);
      assert.deepEqual((await dataOf(replies[winner]!)).result, { n: winner + 1 });
      const events = told(await client.events("middle", id));
      assert.equal(events.filter((line) => line === "workflow-start").length, 2);
    }
  });
  test("POST .../resume of an execution that has ended is 404, and says how it stands", async () => {
    const { executionId } = await client
      .execute("raced", {})
      .then(async (result) => client.resume("raced", result.executionId));
    const { status, error } = await refused(client.command("raced", executionId, "resume"));
    assert.deepEqual([status, error], [404, `execution "${executionId}" is not suspended: it is completed`]);
  });
  test("POST .../resume: a step that fails after it is 500 with x-execution-id", async () => {
    const { id } = await suspend("failing", {});
    const { status, error, headers } = await refused(client.command("failing", id, "resume"));
    assert.deepEqual([status, error, headers.get("x-execution-id")], [500, 'step "b": the probe is broken', id]);
    assert.equal((await client.state("failing", id)).status, "error");
  });
});
