/** From the text of a workflow to its tree: kinds, paths, defaults, checks, and what is wrong with it. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { checkReferences } from "../../../core/manifest/references.ts";
import { compileDefinition } from "../../../core/workflows/compile/definition.ts";
import { MAX_STEPS, outlineSteps } from "../../../core/workflows/definition/pinned.ts";
import { PLUGINS } from "../../manifest/cases.ts";
import { callOf, linked, oneStep, run, scopeOf, stepsByPath, workflowsOf } from "../../support/definitions.ts";

/** The example of the manifest's whole grammar, without what this version cannot link. */
const EXAMPLE = readFileSync(new URL("../../manifest/cases/the-whole-grammar.case", import.meta.url), "utf8")
  .split(/^-{10,}$/m)[0]!
  .replace(/^store: .*$/m, "store: 'memory:'")
  .replace(/^ {4}semantic: .*$/m, "");
const ENV = { JWT_SECRET: "0123456789abcdef0123456789abcdef" };

test("the example manifest compiles: every step is of its kind, and those of the sub-workflow are inside of it", async (t) => {
  const { loaded, workflows, problems } = await linked(t, EXAMPLE, { env: ENV });
  assert.deepEqual(problems, []);
  assert.deepEqual(
    checkReferences(loaded, PLUGINS).filter(({ severity }) => severity === "error"),
    [],
  );
  assert.deepEqual([...workflows.keys()], ["expense", "pipeline"]);
  const { definition } = workflows.get("expense")!;
  const kinds = [...stepsByPath(definition.steps).values()].map(({ path, type, kind }) => `${path} ${type} ${kind}`);
  assert.deepEqual(kinds, [
    "total andThen work",
    "shape andThen set",
    "rate andThen work",
    "gate andWhen when",
    "ask andThen suspend",
    "both andAll all",
    "a andThen set",
    "b andThen set",
    "quick andRace race",
    "c andThen work",
    "d andThen set",
    "audit andTap work",
    "letter andAgent work",
    "sub andWorkflow sub",
    "sub/mark andThen set",
  ]);
  const { name, timeout, recovery, hash } = definition;
  assert.deepEqual([name, timeout, recovery], ["Expense approval", 600_000, "resume"]);
  assert.equal(hash, workflows.get("expense")!.hash);
});

test("the steps of the example do what it says", async (t) => {
  const { definition } = (await workflowsOf(t, EXAMPLE, { env: ENV })).get("expense")!;
  const steps = stepsByPath(definition.steps);
  const input = { employee: "Ada", amount: 100 };
  const total = await run(steps.get("total")!, callOf({ data: input, input }));
  assert.deepEqual(total, { employee: "Ada", amount: 100, total: 120 });
  const shape = steps.get("shape")!;
  assert.ok(shape.kind === "set");
  assert.deepEqual(shape.evaluate(scopeOf({ data: total, input })), { amount: 120, who: "Ada" });
  assert.deepEqual(await run(steps.get("rate")!, callOf({ data: { amount: 120 } })), { sum: 121 });
  const gate = steps.get("gate")!;
  assert.ok(gate.kind === "when");
  assert.equal(gate.condition(scopeOf({ steps: { shape: { amount: 120 } } })), true);
  assert.equal(gate.else, null);
  const [ask] = gate.then;
  assert.ok(ask?.kind === "suspend");
  const scope = scopeOf({ steps: { shape: { amount: 120 } } });
  assert.deepEqual([ask.reason(scope), ask.data(scope)], ["Manager approval needed", { amount: 120 }]);
  assert.equal(await run(steps.get("audit")!, callOf({ data: { any: 1 } })), null);
  const sub = steps.get("sub")!;
  assert.ok(sub.kind === "sub");
  assert.deepEqual(sub.input(scopeOf({ data: { x: 1 } })), { x: 1 });
  assert.equal(sub.startCheck?.("text", "input"), "input must be object");
  assert.equal(sub.resultCheck, null);
});

test("checks name what is wrong by its root, and are null where there is no schema", async (t) => {
  const object = (type: string) => ({ type: "object", properties: { n: { type } }, required: ["n"] });
  const workflow = { input: object("number"), result: object("string"), resume: object("boolean") };
  const steps = [{ id: "s", inputSchema: object("integer"), resumeSchema: object("null"), andThen: { set: 1 } }];
  const { definition } = (await workflowsOf(t, { workflows: { w: { ...workflow, steps } } })).get("w")!;
  assert.equal(definition.inputCheck?.({ n: "x" }, "input"), "input.n must be number");
  assert.equal(definition.inputCheck?.({ n: 1 }, "input"), null);
  assert.equal(definition.resultCheck?.({}, "result"), "result.n is required");
  assert.equal(definition.resumeCheck?.([], "resumeData"), "resumeData must be object");
  assert.equal(definition.suspendCheck, null);
  const [step] = definition.steps;
  assert.equal(step?.inputCheck?.({ n: 1.5 }, "input"), "input.n must be integer");
  assert.deepEqual([step?.outputCheck, step?.suspendCheck], [null, null]);
  assert.equal(step?.resumeCheck?.({ n: null }, "resumeData"), null);
});

test("retries are the step's, else the workflow's; a step that holds others is tried again only when it says so", async (t) => {
  const set = { andThen: { set: 1 } };
  const retry = { attempts: 2, delay: "1s", backoff: "fixed" };
  const workflows = {
    w: {
      retry,
      steps: [
        { id: "a", ...set },
        { id: "b", ...set, retry: { attempts: 5 }, timeout: "250ms" },
        { id: "all", andAll: [{ id: "c", ...set }] },
        { id: "race", retry: { attempts: 1 }, andRace: [{ id: "d", ...set }] },
        { id: "sub", andWorkflow: { workflow: "inner" } },
        { id: "timed", timeout: "2s", andWorkflow: { workflow: "inner" } },
      ],
    },
    inner: { retry: { attempts: 7 }, timeout: "1m", steps: [{ id: "e", ...set }] },
  };
  const { definition } = (await workflowsOf(t, { workflows })).get("w")!;
  const steps = stepsByPath(definition.steps);
  const attempts = [...steps].map(([path, step]) => [path, step.retry.attempts]);
  assert.deepEqual(Object.fromEntries(attempts), {
    a: 2,
    b: 5,
    all: 0,
    c: 2,
    race: 1,
    d: 2,
    sub: 0,
    "sub/e": 7,
    timed: 0,
    "timed/e": 7,
  });
  const plain = { maxDelay: null, jitter: false, unless: null };
  assert.deepEqual(steps.get("a")!.retry, { attempts: 2, delay: 1000, backoff: "fixed", ...plain });
  assert.deepEqual(steps.get("b")!.retry, { attempts: 5, delay: 100, backoff: "exponential", ...plain });
  assert.deepEqual(
    ["a", "b", "sub", "timed", "sub/e"].map((path) => steps.get(path)!.timeout),
    [null, 250, 60_000, 2000, null],
  );
});

test("steps of a sub-workflow check what they suspend and resume with by its schemas, else by the outer workflow's", async (t) => {
  const ask = { andThen: { suspend: { reason: "why" } } };
  const text = { type: "string" };
  const workflows = {
    outer: {
      resume: { type: "number" },
      steps: [
        { id: "sub", andWorkflow: { workflow: "inner" } },
        { id: "own", ...ask },
      ],
    },
    over: { resume: { type: "boolean" }, steps: [{ id: "deep", andWorkflow: { workflow: "bare" } }] },
    bare: {
      steps: [
        { id: "a", ...ask },
        { id: "in", andWorkflow: { workflow: "inner" } },
      ],
    },
    top: { steps: [{ id: "over", andWorkflow: { workflow: "over" } }] },
    inner: {
      resume: text,
      suspend: text,
      steps: [
        { id: "a", ...ask },
        { id: "b", resumeSchema: { type: "null" }, ...ask },
      ],
    },
  };
  const compiled = await workflowsOf(t, { workflows });
  const outer = stepsByPath(compiled.get("outer")!.definition.steps);
  assert.equal(outer.get("sub/a")!.resumeCheck?.(1, "resumeData"), "resumeData must be string");
  assert.equal(outer.get("sub/a")!.suspendCheck?.(1, "data"), "data must be string");
  assert.equal(outer.get("sub/b")!.resumeCheck?.("x", "resumeData"), "resumeData must be null");
  assert.equal(outer.get("own")!.resumeCheck, null, "the definition's own goes for it");
  const top = stepsByPath(compiled.get("top")!.definition.steps);
  assert.equal(top.get("over/deep/a")!.resumeCheck?.(1, "resumeData"), "resumeData must be boolean");
  assert.equal(top.get("over/deep/in/a")!.resumeCheck?.(1, "resumeData"), "resumeData must be string");
  assert.equal(stepsByPath(compiled.get("inner")!.definition.steps).get("a")!.resumeCheck, null);
});

test("an expression that fails says which one it was; a condition that gives no yes or no fails too", async (t) => {
  const set = await oneStep(t, { andThen: { set: { a: "{{ data.n + 1 }}", b: ["{{ data.gone.x }}"] } } });
  assert.ok(set.kind === "set");
  const expression = { name: "ExpressionError" };
  assert.throws(() => set.evaluate(scopeOf({ data: { n: 1 } })), {
    ...expression,
    message: '{{ data.gone.x }}: there is no "gone" in data',
  });
  const when = await oneStep(t, { andWhen: { if: "data.ok", then: { id: "t", andThen: { set: 1 } } } });
  assert.ok(when.kind === "when");
  assert.equal(when.condition(scopeOf({ data: { ok: false } })), false);
  const message = "{{ data.ok }}: must give true or false, not text";
  assert.throws(() => when.condition(scopeOf({ data: { ok: "yes" } })), { ...expression, message });
  const braces = await oneStep(t, { andWhen: { if: "{{ data.ok }}", then: { id: "t", andThen: { set: 1 } } } });
  assert.ok(braces.kind === "when");
  assert.throws(() => braces.condition(scopeOf({ data: { ok: "yes" } })), { ...expression, message });
});

test("a suspension without data hands out null, and its reason is text whatever the expression gives", async (t) => {
  const step = await oneStep(t, { andThen: { suspend: { reason: "{{ data.n }}" } } });
  assert.ok(step.kind === "suspend");
  const scope = scopeOf({ data: { n: 7 } });
  assert.deepEqual([step.reason(scope), step.data(scope)], ["7", null]);
});

test("settings of step plugins that do not fit are problems at their place, each once", async (t) => {
  const workflows = {
    w: {
      steps: [
        { id: "a", andThen: { use: "add-tax", with: { rate: 2, rat: 1 } } },
        { id: "b", andWorkflow: { workflow: "inner" } },
        { id: "c", andWorkflow: { workflow: "inner" } },
      ],
    },
    inner: { steps: [{ id: "a", andAll: [[{ id: "b", andTap: { use: "slow", with: { milliseconds: "long" } } }]] }] },
  };
  const { problems, workflows: compiled } = await linked(t, { workflows });
  assert.equal(compiled.size, 0);
  assert.deepEqual(problems, [
    { path: ["workflows", "w", "steps", 0, "andThen", "with"], message: "rat is not a known key; rate must be <= 1" },
    {
      path: ["workflows", "inner", "steps", 0, "andAll", 0, 0, "andTap", "with"],
      message: "milliseconds must be integer",
    },
  ]);
});

test("what a definition names and is gone is listed by kind and name, and its outline is known all the same", async (t) => {
  const rest = {
    providers: { demo: { use: "scripted" } },
    tools: { add: { use: "add" } },
    agents: { writer: { model: "demo/echo", memory: false } },
  };
  const steps = [
    { id: "a", name: "First", andThen: { use: "mine" } },
    { id: "b", andTap: { tool: "add" } },
    { id: "c", andAgent: { agent: "writer", prompt: "x" } },
    { id: "d", andThen: { set: `\${GREETING}` } },
  ];
  const plugins = { "steps/mine.mjs": `export default { kind: "step", execute: () => 1 };` };
  const first = await linked(t, { ...rest, workflows: { w: { steps } } }, { plugins, env: { GREETING: "hi" } });
  const { pinned, definition } = first.workflows.get("w")!;
  const { parts } = await linked(t, { workflows: {} });
  assert.deepEqual(compileDefinition(pinned, parts), {
    problems: [],
    missing: ['environment variable "GREETING"', 'step plugin "mine"', 'tool "add"', 'agent "writer"'],
  });
  assert.deepEqual(outlineSteps(pinned), definition.outline);
  assert.equal(definition.outline.get("a")?.name, "First");
});

test("an outline has the steps of an onError behind what they handle, beside it and not inside", async (t) => {
  const set = { andThen: { set: 1 } };
  const workflows = {
    w: {
      steps: [
        { id: "all", andAll: [{ id: "a", ...set, onError: [{ id: "b", ...set }] }], onError: [{ id: "c", ...set }] },
        { id: "sub", andWorkflow: { workflow: "v" }, onError: [{ id: "d", ...set, onError: [{ id: "e", ...set }] }] },
      ],
      onError: [{ id: "f", ...set }],
    },
    v: { steps: [{ id: "g", ...set }], onError: [{ id: "h", bail: { if: "true" } }] },
  };
  const { definition } = (await workflowsOf(t, { workflows })).get("w")!;
  const rows = [...definition.outline.values()].map(({ path, index, parents, handles }) => [
    path,
    index,
    parents.join(),
    handles?.join(" "),
  ]);
  assert.deepEqual(rows, [
    ["all", 0, "", undefined],
    ["a", 0, "all", undefined],
    ["b", 0, "all", "a"],
    ["c", 0, "", "all"],
    ["sub", 1, "", undefined],
    ["sub/g", 1, "sub", undefined],
    ["sub/h", 1, "sub", "sub/"],
    ["d", 1, "", "sub"],
    ["e", 1, "", "sub d"],
    ["f", 2, "", ""],
  ]);
  assert.deepEqual(definition.outline.get("f")!.handles, [""]);
  assert.deepEqual(
    [...stepsByPath([...definition.steps, ...definition.onError!]).keys()].sort(),
    rows.map(([path]) => path).sort(),
  );
});

test("an outline has the steps in the order of the text, with their place at the top and what holds them", async (t) => {
  const set = { andThen: { set: 1 } };
  const workflows = {
    w: {
      steps: [
        [{ id: "a", ...set }, [{ id: "b", ...set }]],
        {
          id: "when",
          andWhen: { if: "true", then: [{ id: "c", ...set }], else: { id: "sub", andWorkflow: { workflow: "v" } } },
        },
        { id: "d", ...set },
      ],
    },
    v: { steps: [{ id: "all", andAll: [{ id: "a", ...set }] }] },
  };
  const { outline } = (await workflowsOf(t, { workflows })).get("w")!.definition;
  const rows = [...outline.values()].map(({ path, index, order, parents }) => [path, index, order, parents.join()]);
  assert.deepEqual(rows, [
    ["a", 0, 0, ""],
    ["b", 1, 1, ""],
    ["when", 2, 2, ""],
    ["c", 2, 3, "when"],
    ["sub", 2, 4, "when"],
    ["sub/all", 2, 5, "when,sub"],
    ["sub/a", 2, 6, "when,sub,sub/all"],
    ["d", 3, 7, ""],
  ]);
});

test("sub-workflows that multiply beyond what a machine should hold are a problem of the workflow", async (t) => {
  const call = (id: string, workflow: string) => ({ id, andWorkflow: { workflow } });
  const level = (workflow: string) => ({ steps: [..."abcdefghij"].map((id) => call(id, workflow)) });
  const workflows = {
    w0: level("w1"),
    w1: level("w2"),
    w2: level("w3"),
    w3: level("w4"),
    w4: { steps: [{ id: "a", andThen: { set: 1 } }] },
  };
  const { problems, workflows: compiled } = await linked(t, { workflows });
  assert.deepEqual([...compiled.keys()], ["w1", "w2", "w3", "w4"]);
  assert.deepEqual(
    problems.map(({ path }) => path),
    [["workflows", "w0"]],
  );
  assert.match(problems[0]!.message, new RegExp(String(MAX_STEPS)));
});

test("workflows that call each other in a circle, or one that is not there, do not keep the rest from being compiled", async (t) => {
  const call = (workflow: string) => ({ steps: [{ id: "x", andWorkflow: { workflow } }] });
  const workflows = { a: call("b"), b: call("a"), c: call("gone"), d: { steps: [{ id: "x", andThen: { set: 1 } }] } };
  const { workflows: compiled, problems } = await linked(t, { workflows });
  assert.deepEqual(problems, []);
  assert.ok(compiled.has("d") && !compiled.has("c"));
});
