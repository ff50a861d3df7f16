/** Parts of the console that need no browser. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { describeWorkflow } from "../../../core/workflows/definition/describe.ts";
import type { StepManifest, WorkflowManifest } from "../../../generated/types.ts";

interface Step {
  path: string;
  name: string;
  type: string;
  branches: { label: string; steps: Step[] }[];
  resumeSchema: unknown;
}
interface Point {
  x: number;
  y: number;
}
interface Drawing {
  width: number;
  height: number;
  steps: (Point & { step: Step })[];
  lines: { from: Point; to: Point; label: string }[];
}
interface Layout {
  STEP_WIDTH: number;
  STEP_HEIGHT: number;
  layout(steps: Step[]): Drawing;
  layoutWorkflow(steps: Step[], onError: Step[]): Drawing;
}
interface Tree {
  steps: Step[];
  onError: Step[];
}
interface Trees {
  loadTree(api: { get(path: string): Promise<unknown> }, id: string, signal: AbortSignal): Promise<Tree>;
  allSteps(tree: Tree): Step[];
}
interface Events {
  readEvents(body: ReadableStream<Uint8Array>): AsyncGenerator<{ id: string; data: unknown }>;
}
interface Examples {
  exampleOf(schema: unknown): unknown;
}
interface Steps {
  Progress: new (mark: (path: string, status: string) => void) => { take(event: object): void };
}

/** Modules of browsers, which the compiler of the service knows nothing of. */
const load = <T>(name: string): Promise<T> =>
  import(new URL(`../../../core/api/pages/console/${name}`, import.meta.url).href);

const leaf = (path: string): Step => ({ path, name: path, type: "andThen", branches: [], resumeSchema: null });
const holder = (type: string, ...branches: Step[][]): Step => ({
  ...leaf(`${type}-${Math.random()}`),
  type,
  branches: branches.map((steps) => ({ label: "", steps })),
});

describe("the drawing of a workflow", () => {
  test("boxes do not lie upon each other, stay within the drawing, and lines go down, however steps are nested", async () => {
    const { layout, STEP_WIDTH, STEP_HEIGHT } = await load<Layout>("graph-layout.js");
    /** Numbers say how wide and deep. */
    const build = (widths: number[], type: string): Step[] =>
      widths.length === 0
        ? [leaf(String(Math.random()))]
        : [
            leaf(String(Math.random())),
            holder(type, ...Array.from({ length: widths[0]! }, () => build(widths.slice(1), type))),
            leaf(String(Math.random())),
          ];
    const shapes = fc.tuple(
      fc.array(fc.integer({ min: 0, max: 3 }), { maxLength: 3 }),
      fc.constantFrom("andAll", "andWhen"),
    );
    fc.assert(
      fc.property(shapes, ([widths, type]) => {
        const { width, height, steps, lines } = layout(build(widths, type));
        for (const { x, y } of steps) {
          assert.ok(x >= 0 && x + STEP_WIDTH <= width + 1e-6, "within the width");
          assert.ok(y >= 0 && y + STEP_HEIGHT <= height + 1e-6, "within the height");
        }
        for (const [index, one] of steps.entries())
          for (const other of steps.slice(index + 1))
            assert.ok(Math.abs(one.x - other.x) >= STEP_WIDTH || Math.abs(one.y - other.y) >= STEP_HEIGHT);
        for (const { from, to } of lines) assert.ok(to.y >= from.y);
      }),
      { numRuns: 60 },
    );
  });

  test("a condition without else has a way past its branch", async () => {
    const { layout } = await load<Layout>("graph-layout.js");
    const one = layout([holder("andWhen", [leaf("a")])]);
    const both = layout([holder("andWhen", [leaf("a")], [leaf("b")])]);
    assert.deepEqual([one.lines.length, both.lines.length], [5, 4]);
  });
});

describe("onError in the console", () => {
  const set = (id: string) => ({ id, name: id, purpose: "", andThen: { set: 1 } });
  const failing = (id: string, onError: [StepManifest]) => ({ ...set(id), onError });
  const workflows: Record<string, Pick<WorkflowManifest, "steps" | "onError">> = {
    w: {
      steps: [
        failing("a", [set("b")]),
        { ...failing("sub", [set("c")]), andThen: undefined, andWorkflow: { workflow: "v", input: 1 } } as StepManifest,
      ],
      onError: [failing("f", [set("g")])],
    },
    v: { steps: [set("x")], onError: [set("y")] },
  };
  const api = {
    async get(path: string) {
      const id = path.slice("workflows/".length);
      const rest = { name: "", purpose: "", recovery: "resume", recoveries: 3 } as WorkflowManifest;
      return describeWorkflow(id, { ...rest, ...workflows[id]! }).detail("idle");
    },
  };

  test("the tree of a workflow has the steps of each onError as a branch, and those of the workflow's own", async () => {
    const { loadTree, allSteps } = await load<Trees>("workflow-tree.js");
    const tree = await loadTree(api, "w", new AbortController().signal);
    const labels = tree.steps.map(({ branches }) => branches.map(({ label, steps }) => [label, steps[0]!.path]));
    assert.deepEqual(labels, [
      [["onError", "b"]],
      [
        ["v", "sub/x"],
        ["onError of v", "sub/y"],
        ["onError", "c"],
      ],
    ]);
    assert.deepEqual(
      allSteps(tree).map(({ path }) => path),
      ["a", "b", "sub", "sub/x", "sub/y", "c", "f", "g"],
    );
  });

  test("the drawing of a workflow has its onError beside it, and a way past that of a step", async () => {
    const { layout, layoutWorkflow, STEP_WIDTH } = await load<Layout>("graph-layout.js");
    const handled = { ...leaf("a"), branches: [{ label: "onError", steps: [leaf("b")] }] };
    const { lines } = layout([handled]);
    assert.deepEqual([lines.length, lines[0]!.label], [5, "onError"]);
    const { width, steps, lines: both } = layoutWorkflow([leaf("a")], [leaf("f")]);
    const [a, f] = steps;
    assert.ok(f!.x >= a!.x + STEP_WIDTH && width >= f!.x + STEP_WIDTH);
    assert.deepEqual(
      both.map(({ label }) => label),
      ["onError"],
    );
  });
});

describe("the console's reader of events", () => {
  test("the console's reader of events gives the same events wherever the bytes are cut", async () => {
    const { readEvents } = await load<Events>("event-stream.js");
    const sent = fc.record({ id: fc.integer({ min: 1 }), data: fc.string({ unit: "grapheme" }) });
    await fc.assert(
      fc.asyncProperty(
        fc.array(sent, { maxLength: 5 }),
        fc.array(fc.integer({ min: 1, max: 9 }), { minLength: 1 }),
        async (events, cuts) => {
          const text = events.map(({ id, data }) => `id: ${id}\ndata: ${JSON.stringify(data)}\n\n: quiet\n\n`).join("");
          const bytes = Buffer.from(`${text}data: [DONE]\n\n`);
          const body = new ReadableStream<Uint8Array>({
            start(controller) {
              for (let at = 0, turn = 0; at < bytes.length; turn++) {
                const end = at + cuts[turn % cuts.length]!;
                controller.enqueue(bytes.subarray(at, end));
                at = end;
              }
              controller.close();
            },
          });
          const read: unknown[] = [];
          for await (const event of readEvents(body)) read.push(event);
          assert.deepEqual(
            read,
            events.map(({ id, data }) => ({ id: String(id), data })),
          );
        },
      ),
      { numRuns: 50 },
    );
  });
});

describe("the example that a form begins with", () => {
  const cases: [title: string, schema: unknown, expected: unknown][] = [
    ["nothing", null, null],
    ["a default goes first", { type: "number", default: 7, minimum: 9 }, 7],
    ["an example", { type: "string", examples: ["A-1002"] }, "A-1002"],
    ["the first choice", { enum: ["red", "blue"] }, "red"],
    ["a number above a bound", { type: "integer", exclusiveMinimum: 3 }, 4],
    ["the first alternative", { anyOf: [{ type: "boolean" }, { type: "string" }] }, false],
    ["the first of several types", { type: ["string", "null"] }, ""],
    [
      "an object with its properties",
      { type: "object", properties: { n: { type: "number" }, tags: { type: "array" } } },
      { n: 0, tags: [] },
    ],
  ];
  for (const [title, schema, expected] of cases)
    test(title, async () => {
      const { exampleOf } = await load<Examples>("example.js");
      assert.deepEqual(exampleOf(schema), expected);
    });

  test("a schema within itself ends", async () => {
    const { exampleOf } = await load<Examples>("example.js");
    const endless: { properties: Record<string, unknown> } = { properties: {} };
    endless.properties.next = endless;
    assert.ok(JSON.stringify(exampleOf(endless)).length < 200);
  });
});

test("the steps of an execution: what is under way waits with it, goes on with it, and ends with it", async () => {
  const { Progress } = await load<Steps>("progress.js");
  const marks = new Map<string, string>();
  const progress = new Progress((path, status) => marks.set(path, status));
  const steps = (type: string, from: string, status: string) => progress.take({ type, from, status });
  progress.take({ type: "workflow-start", status: "running" });
  steps("step-start", "gate", "running");
  steps("step-start", "ask", "running");
  progress.take({ type: "workflow-result", status: "suspended" });
  assert.deepEqual([...marks.values()], ["suspended", "suspended"]);
  progress.take({ type: "workflow-start", status: "running" });
  assert.deepEqual([...marks.values()], ["running", "running"]);
  steps("step-complete", "ask", "success");
  progress.take({ type: "workflow-result", status: "cancelled" });
  assert.deepEqual(Object.fromEntries(marks), { gate: "cancelled", ask: "success" });
  steps("step-start", "ask", "running");
  progress.take({ type: "workflow-result", status: "suspended" });
  progress.take({ type: "workflow-result", status: "cancelled" });
  assert.equal(marks.get("ask"), "cancelled", "cancelled while it waited");
});
