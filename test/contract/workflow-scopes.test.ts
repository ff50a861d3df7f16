/** What expressions and step plugins see, per-step schemas, shared state. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { pluginFolder } from "../support/plugin-folder.ts";
import { watchProbe } from "../support/probe.ts";
import { refused, startWorkflows } from "../support/workflow-service.ts";

const set = (id: string, value: unknown) => ({ id, andThen: { set: value } });
const probe = (id: string, config: object = {}) => ({ id, andThen: { use: "probe", with: config } });
const SEEN = {
  data: "{{ data }}",
  input: "{{ input }}",
  state: "{{ state }}",
  context: "{{ context }}",
  user: "{{ user }}",
  a: "{{ steps.a }}",
  resume: "{{ resume }}",
};

const client = await startWorkflows(null, {
  scopes: { steps: [set("a", { one: 1 }), set("b", { two: 2 }), set("all", SEEN)] },
  values: {
    steps: [
      set("v", {
        number: "{{ data.n + 1 }}",
        text: "n is {{ data.n }}, {{ data.list }}",
        list: ["{{ data.n }}", { deep: "{{ data.list[1] }}" }],
        float: "{{ data.n / 2 }}",
        bool: "{{ data.n > 1 && !data.no }}",
        big: "{{ data.list.map(x, x * 2) }}",
        plain: "no expression",
        literal: 7,
      }),
    ],
  },
  missing: { steps: [set("v", { deep: ["{{ data.not.there }}"] })] },
  stale: {
    steps: [
      probe("first", { state: { n: 1, list: [1] } }),
      set("seen", { n: "{{ state.n }}" }),
      probe("second", { state: { n: 2 } }),
      {
        id: "failing",
        retry: { attempts: 1, delay: "1ms" },
        andThen: { use: "probe", with: { fails: 1, state: { tries: 1 } } },
      },
      set("last", { state: "{{ state }}", seen: "{{ steps.seen.n }}" }),
    ],
  },
  undone: {
    steps: [
      { id: "wrong", andTap: { use: "probe", with: { fails: 9, state: { wrong: true } } } },
      set("last", "{{ state }}"),
    ],
  },
  schemas: {
    steps: [
      {
        id: "one",
        inputSchema: { type: "object", properties: { n: { type: "number" } }, required: ["n"] },
        outputSchema: { type: "object", properties: { m: { type: "number" } }, required: ["m"] },
        andThen: { use: "probe" },
      },
    ],
  },
  checked: { steps: [{ id: "one", outputSchema: { type: "string" }, andThen: { set: "{{ data }}" } }] },
  holders: {
    steps: [{ id: "all", outputSchema: { required: ["b"] }, andAll: [set("a", { a: 1 })] }],
  },
  raced: { steps: [{ id: "race", outputSchema: { required: ["b"] }, andRace: [set("a", { a: 1 })] }] },
  chosen: {
    steps: [{ id: "when", outputSchema: { required: ["b"] }, andWhen: { if: "true", then: set("a", { a: 1 }) } }],
  },
  inner: {
    steps: [
      set("a", "inner"),
      set("seen", { input: "{{ input }}", data: "{{ data }}", a: "{{ steps.a }}", context: "{{ context }}" }),
    ],
  },
  outer: {
    steps: [set("a", "outer"), { id: "sub", andWorkflow: { workflow: "inner", input: { from: "{{ data }}" } } }],
  },
  probing: {
    steps: [
      set("a", { list: [1] }),
      probe("p"),
      set("after", { a: "{{ steps.a.list }}", state: "{{ state }}", input: "{{ input }}" }),
    ],
  },
});

const run = async (workflow: string, input: unknown = null, options: object = {}) =>
  (await client.execute(workflow, input, options)).result as Record<string, unknown>;
const failure = async (workflow: string, input: unknown = null) =>
  (await refused(client.service.post(`/workflows/${workflow}/execute`, { input }))).error;

describe("POST /workflows/:id/execute: expressions of steps", () => {
  test("expressions of workflow steps see data, input, state, context, user, steps and resume", async () => {
    assert.deepEqual(await run("scopes", { i: 1 }, { context: { c: 1 }, workflowState: { s: 1 } }), {
      data: { two: 2 },
      input: { i: 1 },
      state: { s: 1 },
      context: { c: 1 },
      user: null,
      a: { one: 1 },
      resume: null,
    });
  });
  test("expressions of workflow steps calculate with JSON numbers, which keep their type", async () => {
    assert.deepEqual(await run("values", { n: 3, list: [1, 2.5], no: false }), {
      number: 4,
      text: "n is 3, [1,2.5]",
      list: [3, { deep: 2.5 }],
      float: 1.5,
      bool: true,
      big: [2, 5],
      plain: "no expression",
      literal: 7,
    });
  });
  test("expressions of workflow steps: a missing field is an error that names the expression", async () => {
    assert.match(await failure("missing", {}), /^step "v": \{\{ data\.not\.there \}\}: /);
  });
  test("expressions of a sub-workflow: it has input and steps of its own, and the same context", async () => {
    assert.deepEqual(await run("outer", 1, { context: { c: 1 } }), {
      input: { from: "outer" },
      data: "inner",
      a: "inner",
      context: { c: 1 },
    });
  });
});

describe("POST /workflows/:id/execute: shared state", () => {
  test("shared state: what a step sets is there for those that come after, key by key; a try that fails sets nothing", async () => {
    const { executionId, result } = await client.execute("stale", null, { workflowState: { kept: true, n: 0 } });
    assert.deepEqual(result, { state: { kept: true, n: 2, list: [1], tries: 1 }, seen: 1 });
    assert.deepEqual((await client.state("stale", executionId)).workflowState, {
      kept: true,
      n: 2,
      list: [1],
      tries: 1,
    });
  });
  test("shared state: a step that failed for good has set nothing", async () => {
    assert.deepEqual(await run("undone", null, { workflowState: { a: 1 } }), { a: 1 });
  });
  test("what is no JSON is refused by setState, and ends the step, not the service", async (t) => {
    const source = `export default { kind: "step", name: "odd", execute({ data, setState }) {
      const round = {}; round.round = round;
      setState(data === "round" ? round : data === "big" ? { n: 1n } : { at: new Date(0), gone: undefined, f() {} });
      return null;
    } };`;
    const plugins = [pluginFolder(t, { "steps/odd.mjs": source })];
    const odd = await startWorkflows(
      t,
      { odd: { steps: [{ id: "s", andThen: { use: "odd" } }, set("t", "{{ state }}")] } },
      {},
      { plugins },
    );
    for (const data of ["round", "big"]) {
      const { status, error } = await refused(odd.service.post("/workflows/odd/execute", { input: data }));
      assert.deepEqual([status, error], [500, 'step "s": setState takes values that JSON can hold']);
    }
    assert.deepEqual((await odd.execute("odd", "fine")).result, { at: "1970-01-01T00:00:00.000Z" });
  });
});

describe("schemas of steps", () => {
  test("inputSchema of a step: input that does not fit fails the step before it runs", async (t) => {
    const watched = watchProbe(t);
    assert.equal(await failure("schemas", { n: "x" }), 'step "one": input.n must be number');
    assert.deepEqual(watched.calls, []);
  });
  test("outputSchema of a step: output that does not fit fails the step", async () => {
    assert.equal(await failure("schemas", { n: 1 }), 'step "one": output.m is required');
    assert.deepEqual(await run("schemas", { n: 1, m: 2 }), { n: 1, m: 2 });
    assert.equal(await failure("checked", 1), 'step "one": output must be string');
  });
  for (const [workflow, id] of [
    ["holders", "all"],
    ["raced", "race"],
    ["chosen", "when"],
  ] as const) {
    test(`outputSchema of a step that holds others, ${id}: output that does not fit fails it`, async () => {
      assert.equal(await failure(workflow), `step "${id}": output.b is required`);
    });
  }
});

describe("what a step plugin sees", () => {
  test("what a step plugin is given is its own: what it changes, nobody else sees", async (t) => {
    const watched = watchProbe(t);
    const { reply } = client.begin("probing", "p1", { n: 1 }, { workflowState: { s: [1] } });
    const { context } = await watched.next("p", "p1");
    context.data.list.push(9);
    context.steps.a.list.push(9);
    context.state.s.push(9);
    context.input.n = 9;
    const { data } = (await (await reply).json()) as { data: { result: unknown } };
    assert.deepEqual(data.result, { a: [1], state: { s: [1] }, input: { n: 1 } });
  });
  test("what a step plugin is given names the execution, the conversation, the first attempt, and a key that is the step's own", async (t) => {
    const watched = watchProbe(t);
    await client.execute("probing", 1, { executionId: "p2", conversationId: "c2", context: { c: 1 } });
    const { context } = await watched.next("p", "p2");
    assert.deepEqual(
      [
        context.executionId,
        context.conversationId,
        context.attempt,
        context.idempotencyKey,
        context.resumeData,
        context.context,
      ],
      ["p2", "c2", 1, "p2:p", undefined, { c: 1 }],
    );
  });
});
