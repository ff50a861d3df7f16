/** Contract, `POST /workflows/:id/executions/:executionId/replay`: from any step that was reached, as a new execution. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { watchProbe } from "../support/probe.ts";
import { dataOf, refused, resultOf, startWorkflows, told } from "../support/workflow-service.ts";

const set = (id: string, value: unknown) => ({ id, andThen: { set: value } });
const probe = (id: string, config: object = {}) => ({ id, andThen: { use: "probe", with: config } });
const ask = (id: string) => ({ id, andThen: { suspend: { reason: `${id}?` } } });

const client = await startWorkflows(null, {
  inner: { steps: [probe("x"), set("y", { y: "{{ data.n }}", x: "{{ steps.x }}", in: "{{ input }}" }), probe("z")] },
  every: {
    steps: [
      probe("a", { state: { a: 1 } }),
      { id: "tap", andTap: { use: "probe", with: { fails: 9 } } },
      {
        id: "gate",
        andWhen: { if: "data.n > 0", then: [probe("in"), set("in2", { n: "{{ data.n + 1 }}" })], else: probe("other") },
      },
      { id: "skip", andWhen: { if: "data.n > 1000", then: probe("never") } },
      {
        id: "all",
        andAll: [
          [probe("l1"), set("l2", { left: "{{ data.n }}" })],
          [probe("r1", { state: { r: 1 } }), set("r2", { n: "{{ data.n }}" })],
        ],
      },
      { id: "race", andRace: [[probe("w1"), probe("w2")], probe("slow", { takes: 60_000 })] },
      { id: "sub", andWorkflow: { workflow: "inner", input: { n: "{{ data.n }}" } } },
      set("last", { data: "{{ data }}", a: "{{ steps.a.n }}", state: "{{ state }}" }),
    ],
  },
  asking: {
    steps: [
      probe("a", { state: { a: 1 } }),
      ask("ask"),
      set("said", "{{ resume }}"),
      probe("b"),
      set("last", { data: "{{ data }}", resume: "{{ resume }}", state: "{{ state }}" }),
    ],
  },
  plugin: { steps: [probe("a", { asks: "well?" }), set("last", "{{ data }}")] },
  failing: { steps: [probe("a"), { id: "b", andThen: { use: "count-to", with: { until: 9 } } }, probe("c")] },
  held: { steps: [probe("a", { hold: true, heeds: false })] },
  outside: { steps: [probe("a", { hold: true }), probe("b")] },
});

const replay = async (workflow: string, id: string, body: object) =>
  resultOf(client.command(workflow, id, "replay", body));

const source = await client.execute(
  "every",
  { n: 1 },
  { executionId: "source", userId: "ada", metadata: { m: 1 }, context: { c: 1 } },
);
const STEPS = [
  "a",
  "tap",
  "gate",
  "in",
  "in2",
  "skip",
  "all",
  "l1",
  "l2",
  "r1",
  "r2",
  "race",
  "w1",
  "w2",
  "sub",
  "sub/x",
  "sub/y",
  "sub/z",
  "last",
];
/** Probes that a replay from each step runs. */
const RUN: Record<string, string[]> = {
  a: ["a", "tap", "in", "l1", "r1", "w1", "w2", "slow", "sub/x", "sub/z"],
  tap: ["tap", "in", "l1", "r1", "w1", "w2", "slow", "sub/x", "sub/z"],
  gate: ["in", "l1", "r1", "w1", "w2", "slow", "sub/x", "sub/z"],
  in: ["in", "l1", "r1", "w1", "w2", "slow", "sub/x", "sub/z"],
  in2: ["l1", "r1", "w1", "w2", "slow", "sub/x", "sub/z"],
  skip: ["l1", "r1", "w1", "w2", "slow", "sub/x", "sub/z"],
  all: ["l1", "r1", "w1", "w2", "slow", "sub/x", "sub/z"],
  l1: ["l1", "r1", "w1", "w2", "slow", "sub/x", "sub/z"],
  l2: ["r1", "w1", "w2", "slow", "sub/x", "sub/z"],
  r1: ["r1", "w1", "w2", "slow", "sub/x", "sub/z"],
  r2: ["w1", "w2", "slow", "sub/x", "sub/z"],
  race: ["w1", "w2", "slow", "sub/x", "sub/z"],
  w1: ["w1", "w2", "slow", "sub/x", "sub/z"],
  // What a branch of a race has done is not taken over: the race is run anew.
  w2: ["w1", "w2", "slow", "sub/x", "sub/z"],
  sub: ["sub/x", "sub/z"],
  "sub/x": ["sub/x", "sub/z"],
  "sub/y": ["sub/z"],
  "sub/z": ["sub/z"],
  last: [],
};

describe("from every step that was reached", () => {
  for (const stepId of STEPS) {
    test(`POST .../replay from step ${stepId}: the same result, and only what comes from there on is run`, async (t) => {
      const watched = watchProbe(t);
      const before = [
        await client.record("source"),
        await client.state("every", "source"),
        await client.events("every", "source"),
      ];
      const { executionId, status, result } = await replay("every", "source", { stepId });
      assert.notEqual(executionId, "source");
      assert.deepEqual([status, result], ["completed", source.result]);
      assert.deepEqual(watched.paths(executionId).sort(), [...RUN[stepId]!].sort());
      const record = await client.record(executionId);
      assert.deepEqual([record.replayedFromExecutionId, record.replayFromStepId], ["source", stepId]);
      assert.deepEqual([record.userId, record.metadata, record.input], ["ada", { m: 1 }, { n: 1 }]);
      const state = await client.state("every", executionId);
      assert.deepEqual(
        [state.context, state.replayedFromExecutionId, state.workflowState],
        [{ c: 1 }, "source", { a: 1, r: 1 }],
      );
      assert.deepEqual(
        [await client.record("source"), await client.state("every", "source"), await client.events("every", "source")],
        before,
      );
      const first = (await client.events("every", executionId)).find(({ type }) => type === "step-start")!;
      const holders = ["gate", "all", "race", "sub"];
      assert.ok(first.from === stepId || holders.includes(first.from), first.from);
      const kept = record.events.find(({ from }: { from: string }) => from === "skip");
      assert.equal(kept.status, "skipped");
    });
  }
});

describe("POST /workflows/:id/executions/:executionId/replay", () => {
  test("POST .../replay: inputData takes the place of the step's input", async () => {
    const { result } = await replay("every", "source", { stepId: "sub/y", inputData: { n: 50 } });
    assert.deepEqual((result as { data: object }).data, { y: 50, x: { n: 2 }, in: { n: 2 } });
    const other = await replay("every", "source", { stepId: "gate", inputData: { n: -1 } });
    assert.equal((other.result as { data: { y: number } }).data.y, -1);
    const none = await replay("every", "source", { stepId: "last", inputData: null });
    assert.equal((none.result as { data: unknown }).data, null);
    const state = await client.events("every", none.executionId);
    assert.equal(state.find(({ from }) => from === "last")!.event.input, null);
  });
  test("POST .../replay: workflowStateOverride takes the place of the state that the step began with", async () => {
    const { result } = await replay("every", "source", { stepId: "sub", workflowStateOverride: { mine: true } });
    assert.deepEqual((result as { state: object }).state, { mine: true });
    const kept = await replay("every", "source", { stepId: "tap" });
    assert.deepEqual((kept.result as { state: object }).state, { a: 1, r: 1 });
  });
  test("POST .../replay: a step that was resumed is resumed with the same, or with other data", async () => {
    const { executionId: id } = await client.execute("asking", { n: 1 });
    const { result } = await client.resume("asking", id, { yes: 1 });
    assert.deepEqual(result, { data: { yes: 1 }, resume: { yes: 1 }, state: { a: 1 } });
    assert.deepEqual((await replay("asking", id, { stepId: "ask" })).result, result);
    const other = await replay("asking", id, { stepId: "ask", resumeData: { no: 1 } });
    assert.deepEqual(other.result, { data: { no: 1 }, resume: { no: 1 }, state: { a: 1 } });
    assert.equal((await replay("asking", id, { stepId: "a" })).status, "suspended");
  });
  test("POST .../replay: `resume` is in scope as it was for steps after the resume", async () => {
    const { executionId: id } = await client.execute("asking", { n: 1 });
    const { result } = await client.resume("asking", id, { yes: 1 });
    for (const stepId of ["said", "b", "last"])
      assert.deepEqual((await replay("asking", id, { stepId })).result, result);
  });
  test("POST .../replay: a step plugin that was resumed sees the data again", async () => {
    const { executionId: id } = await client.execute("plugin", { n: 1 });
    await client.resume("plugin", id, "yes");
    assert.deepEqual((await replay("plugin", id, { stepId: "a" })).result, {
      n: 1,
      answer: "yes",
    });
  });
  test("POST .../replay of a suspended execution: it suspends again; the source stays suspended", async () => {
    const { executionId: id } = await client.execute("asking", { n: 1 });
    const again = await replay("asking", id, { stepId: "ask" });
    assert.equal(again.status, "suspended");
    assert.equal((await client.state("asking", id)).status, "suspended");
    assert.equal((await client.resume("asking", again.executionId, { ok: 1 })).status, "completed");
    assert.equal((await client.resume("asking", id, { ok: 1 })).status, "completed");
  });
  test("POST .../replay of an execution that failed, from the step that failed: 500 again, with the new id", async (t) => {
    const watched = watchProbe(t);
    const failed = await refused(client.service.post("/workflows/failing/execute", { input: { n: 1 } }));
    const id = failed.headers.get("x-execution-id")!;
    const { status, error, headers } = await refused(client.command("failing", id, "replay", { stepId: "b" }));
    assert.deepEqual([status, error], [500, 'step "b": called 1 times']);
    const other = headers.get("x-execution-id")!;
    assert.notEqual(other, id);
    assert.deepEqual(watched.paths(other), ["b"]);
  });
  test("POST .../replay of a replay: from before and from after the step that it began with", async (t) => {
    const watched = watchProbe(t);
    const one = await replay("every", "source", { stepId: "sub", inputData: { n: 7 } });
    assert.equal((one.result as { data: { y: number } }).data.y, 7);
    const same = await replay("every", one.executionId, { stepId: "sub" });
    assert.deepEqual(same.result, one.result);
    const after = await replay("every", one.executionId, { stepId: "sub/z" });
    assert.deepEqual(after.result, one.result);
    assert.deepEqual(watched.paths(after.executionId), ["sub/z"]);
    const before = await replay("every", one.executionId, { stepId: "in2" });
    assert.deepEqual(before.result, source.result);
    assert.equal((await client.state("every", before.executionId)).replayedFromExecutionId, one.executionId);
  });
  test("POST .../replay from an unknown step, and one that was never reached, is 400", async () => {
    for (const [stepId, message] of [
      ["nope", /^stepId: there is no step "nope"/],
      ["sub/q", /^stepId: there is no step "sub\/q"/],
      ["other", /^stepId: the execution never reached "other"$/],
      ["never", /^stepId: the execution never reached "never"$/],
    ] as const) {
      const { status, error } = await refused(client.command("every", "source", "replay", { stepId }));
      assert.equal(status, 400);
      assert.match(error, message);
    }
  });
  test("POST .../replay of an execution that still runs is 400, of an unknown one 404", async (t) => {
    const watched = watchProbe(t);
    const { id, reply } = client.begin("held", "held-1");
    const call = await watched.next("a", id);
    const { status, error } = await refused(client.command("held", id, "replay", { stepId: "a" }));
    assert.deepEqual(
      [status, error],
      [400, "the execution is still running: it can be replayed once it has ended or is suspended"],
    );
    call.release(1);
    await dataOf(reply);
    assert.equal((await refused(client.command("held", "unknown", "replay", { stepId: "a" }))).status, 404);
    assert.equal((await refused(client.command("nope", id, "replay", { stepId: "a" }))).status, 404);
  });
  test("POST .../replay: a step that was suspended from outside has no resume payload on record", async (t) => {
    const watched = watchProbe(t);
    const { id } = client.begin("outside", "outside-1", { n: 1 });
    await watched.next("a", id);
    await dataOf(client.command("outside", id, "suspend"));
    const resumed = client.resume("outside", id);
    (await watched.next("a", id)).release({ n: 2 });
    await resumed;
    const replaying = client.command("outside", id, "replay", { stepId: "a" });
    const call = await watched.next("a");
    assert.equal(call.context.resumeData, undefined);
    call.release({ n: 3 });
    assert.deepEqual((await resultOf(replaying)).result, { n: 3 });
  });
  test("POST .../replay: the events of the new execution begin with its own start", async () => {
    const { executionId } = await replay("every", "source", { stepId: "last" });
    const events = await client.events("every", executionId);
    assert.deepEqual(told(events), [
      "workflow-start",
      "step-start last",
      "step-complete last",
      "workflow-complete",
      "workflow-result",
    ]);
    assert.deepEqual(
      events.map(({ id }) => id),
      [1, 2, 3, 4, 5],
    );
  });
});
