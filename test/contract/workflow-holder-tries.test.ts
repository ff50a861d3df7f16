/** Tries: of a step beside others, of steps that hold others, and of many branches at once. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { until, watchProbe } from "../support/probe.ts";
import { refused, resultOf, startWorkflows, told } from "../support/workflow-service.ts";

const probe = (id: string, config: object = {}) => ({ id, andThen: { use: "probe", with: config } });
const countTo = (id: string, until: number) => ({ id, andThen: { use: "count-to", with: { until } } });
const QUICK = { attempts: 2, delay: "1ms", backoff: "fixed" };
/** A try after the first would not end in time. */
const NEVER = { attempts: 3, delay: "1h" };

const client = await startWorkflows(null, {
  beside: {
    steps: [
      {
        id: "all",
        andAll: [
          { ...probe("a", { hold: true }), retry: { attempts: 1, delay: "1ms" } },
          probe("b", { hold: true, state: { b: 1 } }),
        ],
      },
    ],
  },
  tapped: {
    steps: [
      {
        id: "all",
        retry: QUICK,
        andAll: [[{ id: "tap", andTap: { use: "probe", with: { fails: 9 } } }, countTo("c", 3)], probe("d")],
      },
    ],
  },
  mended: { steps: [{ id: "all", retry: QUICK, andAll: [countTo("c", 3)] }] },
  hopeless: { steps: [{ id: "all", retry: QUICK, andAll: [probe("b", { fails: 9, message: "no" })] }] },
  slow: { steps: [{ id: "all", retry: QUICK, timeout: "15ms", andAll: [probe("b", { takes: 60_000 })] }] },
  misfit: {
    steps: [{ id: "all", retry: QUICK, outputSchema: { type: "object", required: ["x"] }, andAll: [probe("b")] }],
  },
  condition: {
    steps: [{ id: "gate", retry: NEVER, andWhen: { if: "data.nothing.here", then: probe("b") } }],
  },
  neither: { steps: [{ id: "gate", retry: NEVER, andWhen: { if: "data.n", then: probe("b") } }] },
  inside: {
    steps: [
      {
        id: "all",
        retry: NEVER,
        andAll: [{ id: "gate", andWhen: { if: "data.nothing.here", then: probe("b") } }],
      },
    ],
  },
  inner: { input: { type: "object", required: ["x"] }, steps: [probe("b")] },
  sub: { steps: [{ id: "sub", retry: NEVER, andWorkflow: { workflow: "inner", input: "{{ data.nothing.here }}" } }] },
  start: { steps: [{ id: "sub", retry: NEVER, andWorkflow: { workflow: "inner", input: "{{ data }}" } }] },
  many: {
    steps: [
      {
        id: "all",
        andAll: Array.from({ length: 20 }, (_, n) => ({
          ...probe(`p${n}`, { fails: 1 }),
          retry: { attempts: 1, delay: "20ms" },
        })),
      },
    ],
  },
});

const failure = async (workflow: string) => {
  const { status, error, headers } = await refused(
    client.service.post(`/workflows/${workflow}/execute`, { input: { n: 1 } }),
  );
  assert.equal(status, 500);
  const id = headers.get("x-execution-id")!;
  return { error, id, events: told(await client.events(workflow, id)) };
};

test("POST /workflows/:id/execute: another try of a step sees shared state as it is then", async (t) => {
  const watched = watchProbe(t);
  const { id, reply } = client.begin("beside", "beside-1", {});
  const [first, beside] = [await watched.next("a", id), await watched.next("b", id)];
  assert.deepEqual(first.context.state, {});
  beside.release({});
  await until(async () => (await client.state("beside", id)).workflowState.b === 1, "the state");
  first.fail("not yet");
  const second = await watched.next("a", id);
  assert.deepEqual(second.context.state, { b: 1 });
  second.release({});
  await resultOf(reply);
});

describe("POST /workflows/:id/execute: a step that holds others and has tries", () => {
  test("retry of a step that holds others: andTap inside that failed is not run again", async (t) => {
    const watched = watchProbe(t);
    const { executionId: id, result } = await client.execute("tapped", { n: 1 });
    assert.deepEqual(result, { n: 1, count: 3 });
    assert.deepEqual(watched.paths(id).sort(), ["c", "c", "c", "d", "tap"]);
    const events = told(await client.events("tapped", id));
    assert.equal(events.filter((event) => event.endsWith(" tap")).length, 2);
  });
  test("retry of a step that holds others: its failure is not on record while another try follows", async () => {
    const { executionId: id } = await client.execute("mended", { n: 1 });
    assert.deepEqual(
      told(await client.events("mended", id)).filter((event) => event.endsWith(" all")),
      ["step-start all", "step-complete all"],
    );
  });
  for (const [workflow, message] of [
    ["hopeless", 'step "b": no'],
    ["slow", 'step "all": timed out after 15ms'],
    ["misfit", 'step "all": output.x is required'],
  ] as const) {
    test(`retry of a step that holds others, ${workflow}: it fails once, with its last try`, async () => {
      const { error, events } = await failure(workflow);
      assert.equal(error, message);
      assert.equal(events.filter((event) => event === "step-error all").length, 1, events.join("\n"));
      assert.deepEqual(events.slice(-3), ["step-error all", "workflow-error", "workflow-result"]);
    });
  }
  for (const [workflow, path, message] of [
    ["condition", "gate", /there is no "nothing" in data/],
    ["neither", "gate", /must give true or false, not a number$/],
    ["inside", "gate", /there is no "nothing" in data/],
    ["sub", "sub", /there is no "nothing" in data/],
    ["start", "sub", /^step "sub": input/],
  ] as const) {
    test(`retry of a step that holds others, ${workflow}: what no other try can mend fails at once`, async () => {
      const { error, events } = await failure(workflow);
      assert.match(error, message);
      assert.equal(events.filter((event) => event === `step-error ${path}`).length, 1);
    });
  }
});

test("POST /workflows/:id/execute: twenty branches that wait for another try give no warning", async (t) => {
  const warnings: Error[] = [];
  const warned = (warning: Error) => void warnings.push(warning);
  process.on("warning", warned);
  t.after(() => process.off("warning", warned));
  const watched = watchProbe(t);
  const { executionId } = await client.execute("many", { n: 1 });
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(watched.paths(executionId).length, 40);
  assert.deepEqual(warnings, []);
});
