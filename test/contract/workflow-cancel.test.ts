/** `POST /workflows/:id/executions/:executionId/cancel`: from running and from suspended, and whom the signal reaches. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { validators } from "../../generated/all-validators.js";
import { until, watchProbe } from "../support/probe.ts";
import type { Loose } from "../support/served-upstream.ts";
import { dataOf, inFlight, refused, resultOf, startWorkflows, told } from "../support/workflow-service.ts";

const probe = (id: string, config: object = {}) => ({ id, andThen: { use: "probe", with: config } });
const ask = (id: string) => ({ id, andThen: { suspend: { reason: `${id}?` } } });
const HELD = { hold: true };
const DEAF = { hold: true, heeds: false };

const client = await startWorkflows(
  null,
  {
    held: { steps: [probe("a"), probe("b", HELD), probe("c")] },
    deaf: { steps: [probe("a", DEAF), probe("b")] },
    final: { steps: [probe("a", DEAF)] },
    asking: { steps: [probe("a"), ask("ask"), probe("b")] },
    branches: {
      steps: [{ id: "all", andAll: [probe("a", HELD), { id: "race", andRace: [probe("b", HELD), ask("ask")] }] }],
    },
    inner: { steps: [probe("in", HELD)] },
    outer: { steps: [{ id: "sub", andWorkflow: { workflow: "inner" } }] },
    tool: { steps: [{ id: "call", andThen: { tool: "linger", input: { takes: 60_000 } } }] },
    tap: { steps: [{ id: "audit", andTap: { use: "probe", with: HELD } }, probe("b")] },
    agent: { steps: [{ id: "letter", andAgent: { agent: "slow", prompt: "Write a very long letter to everybody" } }] },
    agentTool: { steps: [{ id: "letter", andAgent: { agent: "handy", prompt: "linger please" } }] },
    trying: { steps: [{ ...probe("a", { fails: 9 }), retry: { attempts: 9, delay: "1h" } }] },
    plain: { steps: [probe("a", { fails: 1 })] },
  },
  {
    tools: { linger: { use: "linger" } },
    providers: {
      demo: { use: "scripted" },
      slow: { use: "scripted", delay: "5s", chunks: 20 },
      handy: { use: "scripted", replies: [{ when: "linger", call: { tool: "linger", input: { takes: 60_000 } } }] },
    },
    agents: {
      slow: { name: "Slow", description: "Slow", instructions: "Help.", model: "slow/echo", memory: false },
      handy: {
        name: "Handy",
        description: "Handy",
        instructions: "Help.",
        model: "handy/echo",
        memory: false,
        tools: ["linger"],
      },
    },
  },
);

const cancel = async (workflow: string, id: string, reason?: string) => {
  const data = await dataOf(client.command(workflow, id, "cancel", { reason }));
  assert.ok(validators.ExecutionCancellation(data), JSON.stringify(validators.ExecutionCancellation.errors));
  assert.deepEqual([data.executionId, data.status], [id, "cancelled"]);
  return data;
};

describe("POST .../cancel: a running execution", () => {
  test("POST .../cancel: a running execution is cancelled at once where its step heeds the signal; replies, record, state and events say so", async (t) => {
    const watched = watchProbe(t);
    const { reply, id } = client.begin("held", "held-1", 1);
    const call = await watched.next("b", id);
    const { cancelledAt, reason } = await cancel("held", id, "no longer needed");
    assert.equal(reason, "no longer needed");
    assert.match(String(call.aborted), /no longer needed/);
    const result = await resultOf(reply);
    assert.deepEqual([result.status, result.result, result.endAt], ["cancelled", null, cancelledAt]);
    const record = await client.record(id);
    assert.deepEqual([record.status, record.cancellation], ["cancelled", { cancelledAt, reason }]);
    const state = await client.state("held", id);
    assert.deepEqual(
      [state.status, state.cancellation, state.endAt],
      ["cancelled", { cancelledAt, reason }, cancelledAt],
    );
    assert.deepEqual(told(await client.events("held", id)).slice(-2), ["workflow-cancelled", "workflow-result"]);
    assert.deepEqual(watched.paths(id), ["a", "b"]);
  });
  test("POST .../cancel: a running execution stops at the next boundary when the step ends in its own time; what it gave is on record", async (t) => {
    const watched = watchProbe(t);
    const { id } = client.begin("deaf", "deaf-1", 1);
    const call = await watched.next("a", id);
    const cancelling = cancel("deaf", id);
    await until(() => call.aborted !== null, "the signal");
    call.release("given");
    assert.equal((await cancelling).reason, "API request");
    const { events } = await client.record(id);
    assert.equal(events.find(({ from }: { from: string }) => from === "a").output, "given");
    assert.deepEqual(watched.paths(id), ["a"]);
  });
  test("POST .../cancel of an execution that completes meanwhile is 400", async (t) => {
    const watched = watchProbe(t);
    const { id } = client.begin("final", "final-1", 1);
    const call = await watched.next("a", id);
    const cancelling = client.command("final", id, "cancel");
    await until(() => call.aborted !== null, "the signal");
    call.release("given");
    const { status, error } = await refused(cancelling);
    assert.deepEqual([status, error], [400, "the execution is already completed"]);
  });
  test("POST .../cancel ends an execution that waits for another try of its step", async (t) => {
    const watched = watchProbe(t);
    const { id } = client.begin("trying", "trying-1", 1);
    await watched.next("a", id);
    await cancel("trying", id);
  });
  test("POST .../cancel wins over a suspension that is under way: the suspend is 400", async (t) => {
    const watched = watchProbe(t);
    const { id } = client.begin("deaf", "deaf-2", 1);
    const call = await watched.next("a", id);
    const suspending = client.command("deaf", id, "suspend");
    await until(() => call.aborted !== null, "the signal");
    const before = await inFlight(client);
    const cancelling = cancel("deaf", id);
    await until(async () => (await inFlight(client)) > before, "the cancellation");
    call.release(1);
    await cancelling;
    const { status, error } = await refused(suspending);
    assert.deepEqual([status, error], [400, "the execution is already cancelled"]);
  });
  test("POST .../cancel of a running execution, several at once: all are told the same", async (t) => {
    const watched = watchProbe(t);
    const { id } = client.begin("held", "held-2", 1);
    await watched.next("b", id);
    const replies = await Promise.all([1, 2, 3].map((n) => client.command("held", id, "cancel", { reason: `${n}` })));
    const reasons = new Set<string>();
    for (const reply of replies) if (reply.status === 200) reasons.add((await dataOf(reply)).reason);
    assert.equal(reasons.size, 1);
    assert.ok(replies.every(({ status }) => status === 200 || status === 400));
  });
});

describe("POST .../cancel: a suspended execution", () => {
  test("POST .../cancel: a suspended execution is cancelled; it can neither be resumed nor cancelled again, but replayed", async (t) => {
    const watched = watchProbe(t);
    const { executionId: id } = await client.execute("asking", { n: 1 });
    const { cancelledAt } = await cancel("asking", id, "too late");
    const state = await client.state("asking", id);
    assert.deepEqual([state.status, state.suspension, state.endAt], ["cancelled", undefined, cancelledAt]);
    assert.equal((await refused(client.command("asking", id, "resume"))).status, 404);
    const again = await refused(client.command("asking", id, "cancel"));
    assert.deepEqual([again.status, again.error], [400, "the execution is already cancelled"]);
    assert.deepEqual(told(await client.events("asking", id)).slice(-4), [
      "workflow-suspended",
      "workflow-result",
      "workflow-cancelled",
      "workflow-result",
    ]);
    assert.deepEqual(watched.paths(id), ["a"]);
    const replayed = await resultOf(client.command("asking", id, "replay", { stepId: "ask", resumeData: { ok: 1 } }));
    assert.deepEqual(replayed.result, { n: 1, ok: 1 });
  });
  test("POST .../cancel of a suspended execution, several at once: it is cancelled once", async () => {
    const { executionId: id } = await client.execute("asking");
    const replies = await Promise.all([1, 2, 3, 4].map(() => client.command("asking", id, "cancel")));
    assert.deepEqual(replies.map(({ status }) => status).sort(), [200, 400, 400, 400]);
  });
});

describe("the signal of a cancel reaches", () => {
  test("POST .../cancel reaches the signal of every branch that runs", async (t) => {
    const watched = watchProbe(t);
    const { id } = client.begin("branches", "branches-1", 1);
    const calls = [await watched.next("a", id), await watched.next("b", id)];
    await cancel("branches", id);
    for (const { aborted } of calls) assert.ok(aborted instanceof Error);
    const { events } = await client.record(id);
    const how = events.map(({ from, status }: Record<string, string>) => `${from} ${status}`);
    assert.deepEqual(how.slice(1, -1).sort(), [
      "a cancelled",
      "all cancelled",
      "ask cancelled",
      "b cancelled",
      "race cancelled",
    ]);
  });
  for (const [what, workflow, path] of [
    ["steps of sub-workflows", "outer", "sub/in"],
    ["tools", "tool", "call"],
    ["andTap", "tap", "audit"],
  ] as const) {
    test(`POST .../cancel reaches ${what}`, async (t) => {
      const watched = watchProbe(t);
      const { id } = client.begin(workflow, `${workflow}-1`, 1);
      const call = await watched.next(path, id);
      await cancel(workflow, id);
      assert.ok(call.aborted instanceof Error);
      assert.deepEqual(watched.paths(id), [path]);
    });
  }
  test("POST .../cancel reaches an agent: the call of its model is given up", async () => {
    const { id } = client.begin("agent", "agent-1", 1);
    const isWorking = async () => (await dataOf(client.service.get("/agents/slow"))).status === "working";
    await until(isWorking, "the run");
    await cancel("agent", id);
    const { entries } = await dataOf(client.service.get("/agents/slow/history"));
    assert.deepEqual(
      entries.map(({ status }: Loose) => status),
      ["cancelled"],
    );
  });
  test("POST .../cancel reaches the tools that an agent has called", async (t) => {
    const watched = watchProbe(t);
    const { id } = client.begin("agentTool", "agentTool-1", 1);
    await until(() => watched.calls.length > 0, "the call");
    await cancel("agentTool", id);
    await until(() => watched.calls[0]!.aborted !== null, "the signal");
  });
});

test("cancel of one that has ended is 400, of an unknown one 404", async () => {
  await refused(client.service.post("/workflows/plain/execute", { input: 1, options: { executionId: "over" } }));
  const { status, error } = await refused(client.command("plain", "over", "cancel"));
  assert.deepEqual([status, error], [400, "the execution is already over: it failed"]);
  assert.equal((await refused(client.command("plain", "unknown", "cancel"))).status, 404);
});
