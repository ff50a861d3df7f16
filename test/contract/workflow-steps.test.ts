/** Contract, "Step types": what each of them runs and gives, alone and in one another. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { watchProbe } from "../support/probe.ts";
import { dataOf, refused, startWorkflows, told } from "../support/workflow-service.ts";

const set = (id: string, value: unknown) => ({ id, andThen: { set: value } });
const probe = (id: string, config: object = {}) => ({ id, andThen: { use: "probe", with: config } });

const client = await startWorkflows(
  null,
  {
    sequence: {
      steps: [set("a", { n: "{{ data.n + 1 }}" }), [set("b", { n: "{{ data.n * 2 }}" }), [set("c", "{{ data.n }}")]]],
    },
    empty: { steps: [probe("nothing", { gives: null }), set("after", "{{ data == null }}")] },
    choice: {
      steps: [
        {
          id: "gate",
          andWhen: {
            if: "data > 10",
            then: [set("big", "big"), set("very", "very {{ data }}")],
            else: set("small", "small"),
          },
        },
        set("last", { was: "{{ data }}", big: "{{ has(steps.big) }}" }),
      ],
    },
    passing: {
      steps: [{ id: "gate", andWhen: { if: "data.n > 10", then: set("big", 1) } }, set("last", "{{ data.n }}")],
    },
    unsure: { steps: [{ id: "gate", andWhen: { if: "data", then: set("big", 1) } }] },
    all: {
      steps: [
        {
          id: "both",
          andAll: [
            probe("slow", { takes: 20, gives: { who: "slow", slow: 1 } }),
            [set("x", { x: 1 }), set("quick", { who: "quick", x: "{{ data.x + 1 }}" })],
            set("text", "a text"),
            set("list", [1, 2]),
            set("none", null),
          ],
        },
      ],
    },
    together: { steps: [{ id: "both", andAll: [probe("p1", { hold: true }), probe("p2", { hold: true })] }] },
    failing: {
      steps: [
        {
          id: "both",
          andAll: [probe("wrong", { takes: 5, fails: 1, message: "paper jam" }), probe("long", { takes: 60_000 })],
        },
      ],
    },
    race: {
      steps: [
        {
          id: "quick",
          andRace: [
            probe("slow", { takes: 60_000, gives: "slow" }),
            [probe("first", { takes: 5 }), set("won", { won: "{{ data }}" })],
            probe("bad", { fails: 1 }),
          ],
        },
        set("last", { got: "{{ data }}" }),
      ],
    },
    late: {
      steps: [
        {
          id: "quick",
          andRace: [
            probe("deaf", { hold: true, heeds: false, state: { late: true } }),
            probe("fast", { takes: 5, gives: 1 }),
          ],
        },
        probe("next", { takes: 30 }),
      ],
    },
    lost: {
      steps: [
        {
          id: "quick",
          andRace: [
            probe("b1", { fails: 1, message: "first" }),
            probe("b2", { fails: 1, takes: 5, message: "second" }),
          ],
        },
      ],
    },
    tap: {
      steps: [
        { id: "audit", andTap: { use: "probe", with: { gives: "ignored", state: { tapped: true } } } },
        set("last", { was: "{{ data }}", tapped: "{{ state.tapped }}" }),
      ],
    },
    tapping: {
      steps: [
        { id: "audit", andTap: { use: "probe", with: { fails: 9, message: "no pencil" } } },
        { id: "asks", andTap: { use: "probe", with: { asks: "really?" } } },
        { id: "picky", inputSchema: { type: "string" }, andTap: { use: "probe" } },
        { id: "strict", outputSchema: { type: "string" }, andTap: { use: "probe" } },
        { id: "tool", andTap: { tool: "fail" } },
        set("last", "{{ data.n }}"),
      ],
    },
    tool: {
      steps: [
        { id: "sum", andThen: { tool: "add", input: { a: "{{ data.n }}", b: 1 } } },
        { id: "again", andThen: { tool: "add", input: { a: "{{ data.sum }}", b: "{{ input.n }}" } } },
      ],
    },
    passed: { steps: [{ id: "sum", andThen: { tool: "add" } }] },
    who: { steps: [{ id: "who", andThen: { tool: "whoami", input: { q: 1 } } }] },
    agent: {
      steps: [
        { id: "letter", andAgent: { agent: "assistant", prompt: "Write to {{ input.name }}" } },
        set("last", "{{ data.text }}"),
      ],
    },
    object: {
      steps: [
        {
          id: "letter",
          andAgent: {
            agent: "clerk",
            prompt: "fill in",
            schema: { type: "object", properties: { total: { type: "number" } }, required: ["total"] },
          },
        },
      ],
    },
    silent: { steps: [{ id: "letter", andAgent: { agent: "clerk", prompt: "break down" } }] },
    inner: {
      input: { type: "object", properties: { n: { type: "number" } }, required: ["n"] },
      result: { type: "object", required: ["m"] },
      steps: [
        {
          id: "gate",
          andWhen: {
            if: "input.n > 0",
            then: [set("mark", { m: "{{ input.n * 10 }}" })],
            else: set("odd", { wrong: true }),
          },
        },
        probe("count", { state: { counted: true } }),
      ],
    },
    outer: {
      steps: [
        set("mark", { n: "{{ input.n }}" }),
        { id: "sub", andWorkflow: { workflow: "inner" } },
        { id: "twice", andWorkflow: { workflow: "inner", input: { n: "{{ steps.sub.m + 1 }}" } } },
        set("last", { m: "{{ data.m }}", mine: "{{ steps.mark.n }}", counted: "{{ state.counted }}" }),
      ],
    },
    everything: {
      steps: [
        {
          id: "race",
          andRace: [
            probe("never", { takes: 60_000 }),
            [
              {
                id: "all",
                andAll: [
                  {
                    id: "when",
                    andWhen: {
                      if: "data.n > 0",
                      then: [[probe("in", { takes: 2 })], { id: "sub", andWorkflow: { workflow: "inner" } }],
                    },
                  },
                  { id: "race2", andRace: [probe("late", { takes: 60_000 }), set("soon", { soon: "{{ data.n }}" })] },
                ],
              },
            ],
          ],
        },
        set("last", "{{ data }}"),
      ],
    },
  },
  {
    tools: { add: { use: "add" }, fail: { use: "fail" }, whoami: { use: "whoami" } },
    providers: {
      demo: {
        use: "scripted",
        replies: [
          { when: "fill in", object: { total: 7 } },
          { when: "break down", error: "rate_limited" },
        ],
      },
    },
    agents: {
      assistant: { name: "Assistant", description: "Helps", instructions: "Help.", model: "demo/echo", memory: false },
      clerk: { name: "Clerk", description: "Fills in", instructions: "Help.", model: "demo/echo", memory: false },
    },
  },
);

const run = async (workflow: string, input: unknown = null) => (await client.execute(workflow, input)).result;
const failure = (workflow: string, input: unknown = null) =>
  refused(client.service.post(`/workflows/${workflow}/execute`, { input }));

describe("POST /workflows/:id/execute, andThen", () => {
  test("andThen: steps run one after the other, lists in lists too, each with what the one before gave", async () => {
    assert.equal(await run("sequence", { n: 1 }), 4);
  });
  test("andThen: a step plugin that gives undefined gives null", async () => {
    assert.equal(await run("empty"), true);
  });
  test("andThen with a tool: it is given its input, and by default what the step before gave", async () => {
    assert.deepEqual(await run("tool", { n: 2 }), { sum: 5 });
    assert.deepEqual(await run("passed", { a: 1, b: 2 }), { sum: 3 });
  });
  test("andThen with a tool: it is told the context and the conversation", async () => {
    const { result } = await client.execute("who", null, { context: { tenant: "x" }, conversationId: "c9" });
    const { input, context, conversationId } = result as Record<string, unknown>;
    assert.deepEqual([input, context, conversationId], [{ q: 1 }, { tenant: "x" }, "c9"]);
  });
  test("andThen with a tool: input that it refuses ends the execution, and says so", async () => {
    const { status, error } = await failure("passed", { a: 1 });
    assert.equal(status, 500);
    assert.match(error, /^step "sum": .*b is required/);
  });
});

describe("POST /workflows/:id/execute, andWhen", () => {
  test("andWhen runs then or else, as its condition says", async () => {
    assert.deepEqual(await run("choice", 11), { was: "very big", big: true });
    assert.deepEqual(await run("choice", 10), { was: "small", big: false });
  });
  test("andWhen: a condition that does not hold, without else, passes on what it was given: skipped", async () => {
    const { executionId, result } = await client.execute("passing", { n: 5 });
    assert.equal(result, 5);
    const events = await client.events("passing", executionId);
    const gate = events
      .filter(({ from }) => from === "gate")
      .map(({ event }) => [event.type, event.status, event.output]);
    assert.deepEqual(gate, [
      ["step-start", "running", undefined],
      ["step-complete", "skipped", { n: 5 }],
    ]);
    const record = await client.record(executionId);
    assert.equal(record.events.find(({ from }: { from: string }) => from === "gate").status, "skipped");
  });
  test("andWhen: a condition that gives neither true nor false is an error that shows the expression", async () => {
    const { status, error } = await failure("unsure", 1);
    assert.deepEqual([status, error], [500, 'step "gate": {{ data }}: must give true or false, not a number']);
  });
});

describe("POST /workflows/:id/execute, andAll", () => {
  test("andAll merges objects in the order of the branches; anything else stands under the id of its step", async () => {
    assert.deepEqual(await run("all"), { who: "quick", slow: 1, x: 2, text: "a text", list: [1, 2], none: null });
  });
  test("andAll runs its branches side by side", async (t) => {
    const watched = watchProbe(t);
    const { reply } = client.begin("together", "t1");
    const [one, two] = [await watched.next("p1", "t1"), await watched.next("p2", "t1")];
    two.release({ two: 2 });
    one.release({ one: 1 });
    assert.deepEqual((await dataOf(reply)).result, { one: 1, two: 2 });
  });
  test("andAll: a branch that fails stops the others at once, and the execution", async (t) => {
    const watched = watchProbe(t);
    const { status, error, headers } = await failure("failing");
    assert.deepEqual([status, error], [500, 'step "wrong": paper jam']);
    const id = headers.get("x-execution-id")!;
    assert.ok((await watched.next("long", id)).aborted instanceof Error);
    const { events } = await client.record(id);
    const how = Object.fromEntries(events.map(({ from, status }: Record<string, string>) => [from, status]));
    assert.deepEqual(how, { failing: "error", both: "error", wrong: "error", long: "cancelled" });
  });
});

describe("POST /workflows/:id/execute, andRace", () => {
  test("andRace gives what the first branch gives that succeeds, and stops the others", async (t) => {
    const watched = watchProbe(t);
    const { executionId, result } = await client.execute("race", 7);
    assert.deepEqual(result, { got: { won: 7 } });
    assert.ok((await watched.next("slow", executionId)).aborted instanceof Error);
    const { events } = await client.record(executionId);
    const how = Object.fromEntries(events.map(({ from, status }: Record<string, string>) => [from, status]));
    assert.deepEqual([how.slow, how.bad, how.won, how.quick], ["cancelled", "error", "success", "success"]);
  });
  test("andRace: nothing comes of a loser that goes on regardless: no output, no state", async (t) => {
    const watched = watchProbe(t);
    const { reply, id } = client.begin("late", "l1");
    const deaf = await watched.next("deaf", id);
    await watched.next("next", id);
    deaf.release({ late: true });
    assert.equal((await dataOf(reply)).result, 1);
    assert.deepEqual((await client.state("late", id)).workflowState, {});
    const events = await client.events("late", id);
    assert.deepEqual(
      told(events).filter((line) => line.endsWith("deaf")),
      ["step-start deaf"],
    );
  });
  test("andRace: when every branch fails, the first in order says why", async () => {
    const { status, error } = await failure("lost");
    assert.deepEqual([status, error], [500, 'step "b1": first']);
  });
});

describe("POST /workflows/:id/execute, andTap", () => {
  test("andTap passes on what it was given, whatever it gives; shared state it may set", async () => {
    assert.deepEqual(await run("tap", { n: 1 }), { was: { n: 1 }, tapped: true });
  });
  test("andTap: its failures change nothing, are in the log and in the record", async () => {
    const { executionId, result } = await client.execute("tapping", { n: 1 });
    assert.equal(result, 1);
    const warned = client.service.log
      .filter((line) => line.executionId === executionId && line.level === "warn")
      .map(({ stepId, msg }) => `${stepId} ${msg}`);
    assert.deepEqual(warned, [
      "audit andTap: no pencil",
      "asks andTap: a step of andTap cannot suspend",
      "picky andTap: input must be string",
      "tool andTap: the shop is closed",
    ]);
    const { events } = await client.record(executionId);
    const how = events.map(({ from, status }: Record<string, string>) => `${from} ${status}`);
    assert.deepEqual(how.slice(1, -1), [
      "audit error",
      "asks error",
      "picky error",
      "strict success",
      "tool error",
      "last success",
    ]);
  });
});

describe("POST /workflows/:id/execute, andAgent", () => {
  test("andAgent gives the text of the agent", async () => {
    assert.equal(await run("agent", { name: "Ada" }), "Write to Ada");
  });
  test("andAgent with a schema gives the object of the agent", async () => {
    assert.deepEqual(await run("object"), { total: 7 });
  });
  test("andAgent: a model that fails is a step that failed, without what the provider said", async () => {
    const { status, error } = await failure("silent");
    assert.equal(status, 500);
    assert.match(error, /^step "letter": model provider failed/);
  });
});

describe("POST /workflows/:id/execute, andWorkflow", () => {
  test("andWorkflow gives the result of the sub-workflow; input and steps are its own, state is shared", async () => {
    const { executionId, result } = await client.execute("outer", { n: 1 });
    assert.deepEqual(result, { m: 110, mine: 1, counted: true });
    const events = await client.events("outer", executionId);
    assert.deepEqual(
      events.filter(({ type }) => type === "step-start").map(({ from, event }) => `${from} ${event.stepIndex}`),
      [
        "mark 0",
        "sub 1",
        "sub/gate 1",
        "sub/mark 1",
        "sub/count 1",
        "twice 2",
        "twice/gate 2",
        "twice/mark 2",
        "twice/count 2",
        "last 3",
      ],
    );
  });
  test("andWorkflow: input and result are checked against its schemas", async () => {
    const { error } = await failure("outer", { n: "x" });
    assert.equal(error, 'step "sub": input.n must be number');
    const other = await failure("outer", { n: -1 });
    assert.equal(other.error, 'step "sub": result.m is required');
  });
  test("andWorkflow: the sub-workflow has no execution of its own on record", async () => {
    await client.execute("outer", { n: 1 });
    assert.deepEqual(await dataOf(client.service.get("/workflows/executions?workflowId=inner")), []);
  });
});

test("POST /workflows/:id/execute runs steps that hold steps that hold steps", async () => {
  const { executionId, result } = await client.execute("everything", { n: 3 });
  assert.deepEqual(result, { m: 30, soon: 3 });
  const { events } = await client.record(executionId);
  const how = Object.fromEntries(events.map(({ from, status }: Record<string, string>) => [from, status]));
  assert.equal(how["sub/mark"], "success");
  assert.equal(how.never, "cancelled");
});
