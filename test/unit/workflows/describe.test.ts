/** Contract, "Workflow summary" and "Workflow detail": what is shown of a workflow of the manifest. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { describeWorkflow } from "../../../core/workflows/definition/describe.ts";
import { validators } from "../../../generated/all-validators.js";
import type { StepManifest, WorkflowManifest } from "../../../generated/types.ts";

/** As the manifest is resolved: what has a default is there. */
const step = (id: string, rest: Partial<StepManifest>): StepManifest => ({ id, name: "", purpose: "", ...rest });
const set = (id: string) => step(id, { andThen: { set: 1 } });
const RETRY = { attempts: 0, delay: 100, backoff: "exponential" } as const;
const workflow = (steps: WorkflowManifest["steps"], rest: Partial<WorkflowManifest> = {}): WorkflowManifest => ({
  name: "",
  purpose: "",
  retry: RETRY,
  recovery: "resume",
  recoveries: 3,
  ...rest,
  steps,
});

const detailOf = (manifest: WorkflowManifest) => {
  const detail = describeWorkflow("flow", manifest).detail("idle");
  assert.ok(validators.WorkflowDetail(detail), JSON.stringify(validators.WorkflowDetail.errors));
  return detail;
};

describe("describeWorkflow: the summary", () => {
  test("a summary has what the contract names, with the status of the moment", () => {
    const described = describeWorkflow("expense", workflow([set("a"), set("b")], { name: "Expense", purpose: "Pays" }));
    const head = { id: "expense", name: "Expense", purpose: "Pays", stepsCount: 2 };
    assert.deepEqual(described.summary("idle"), { ...head, status: "idle" });
    assert.deepEqual(described.summary("running"), { ...head, status: "running" });
  });

  test("a workflow without a name has its id as its name", () => {
    const { name, purpose } = describeWorkflow("expense", workflow([set("a")])).summary("idle");
    assert.deepEqual([name, purpose], ["expense", ""]);
  });
});

describe("describeWorkflow: the detail", () => {
  test("schemas that nobody declared are null, those of steps are left out", () => {
    const detail = detailOf(workflow([set("a")]));
    const { inputSchema, resultSchema, suspendSchema, resumeSchema, steps } = detail;
    assert.deepEqual([inputSchema, resultSchema, suspendSchema, resumeSchema], [null, null, null, null]);
    assert.deepEqual(steps, [{ id: "a", name: "a", type: "andThen", purpose: "" }]);
  });

  test("declared schemas are shown as they are, an empty one too", () => {
    const schema = { type: "object" };
    const schemas = { inputSchema: schema, outputSchema: {}, suspendSchema: schema, resumeSchema: schema };
    const manifest = workflow([step("a", { ...schemas, name: "A", purpose: "For all", andThen: { set: 1 } })], {
      input: schema,
      result: schema,
      suspend: {},
      resume: schema,
    });
    const detail = detailOf(manifest);
    assert.deepEqual([detail.inputSchema, detail.resultSchema, detail.resumeSchema], [schema, schema, schema]);
    assert.deepEqual(detail.suspendSchema, {});
    assert.deepEqual(detail.steps, [{ id: "a", name: "A", type: "andThen", purpose: "For all", ...schemas }]);
  });

  test("every kind of step, and the steps that it holds, in the order of the manifest", () => {
    const detail = detailOf(
      workflow([
        step("when", { andWhen: { if: "true", then: [set("t1"), set("t2")], else: set("e") } }),
        step("all", { andAll: [set("a"), [set("b1"), [set("b2")]]] }),
        step("race", { andRace: [set("c"), step("inner", { andWhen: { if: "true", then: set("d") } })] }),
        step("tap", { andTap: { use: "x" } }),
        step("agent", { andAgent: { agent: "x", prompt: "y", stream: false } }),
        step("sub", { andWorkflow: { workflow: "x", input: "{{ data }}" } }),
      ]),
    );
    type Shape = [id: string, type: string, ...held: unknown[]];
    const shape = ({ id, type, steps }: (typeof detail.steps)[number]): Shape => [
      id,
      type,
      ...(steps ?? []).map(shape),
    ];
    assert.deepEqual(detail.steps.map(shape), [
      ["when", "andWhen", ["t1", "andThen"], ["t2", "andThen"], ["e", "andThen"]],
      ["all", "andAll", ["a", "andThen"], ["b1", "andThen"], ["b2", "andThen"]],
      ["race", "andRace", ["c", "andThen"], ["inner", "andWhen", ["d", "andThen"]]],
      ["tap", "andTap"],
      ["agent", "andAgent"],
      ["sub", "andWorkflow"],
    ]);
    assert.deepEqual(
      detail.steps.map(({ branches }) => branches),
      [[["t1", "t2"], ["e"]], [["a"], ["b1", "b2"]], [["c"], ["inner"]], undefined, undefined, undefined],
    );
    assert.deepEqual(
      detail.steps.map(({ workflow }) => workflow),
      [undefined, undefined, undefined, undefined, undefined, "x"],
    );
  });

  test("the steps of a nested list are steps at the top, and count as such", () => {
    const detail = detailOf(workflow([set("a"), [set("b"), set("c")]]));
    assert.equal(detail.stepsCount, 3);
    assert.deepEqual(
      detail.steps.map(({ id }) => id),
      ["a", "b", "c"],
    );
  });
});
