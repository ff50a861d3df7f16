/** Runs of agents that are kept: how they begin, what is told of them, how they are followed, cancelled, and go on after a crash. */
import assert from "node:assert/strict";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { EVERYTHING } from "../../core/identity/principal.ts";
import { heldModel } from "../support/held-model.ts";
import { until } from "../support/probe.ts";
import { startService, type TestOptions, type TestService } from "../support/service.ts";
import { temporaryFolder } from "../support/storage.ts";

// biome-ignore lint/suspicious/noExplicitAny: replies of many shapes
type Loose = any;

const SCRIPTED = {
  use: "scripted",
  models: {
    slow: {
      replies: [{ when: ".", text: "one two three four five six seven eight nine ten" }],
      chunks: 10,
      delay: "150ms",
    },
  },
};

/** Starts services one after the other on one SQLite file. */
async function restarts(t: TestContext) {
  const folder = await temporaryFolder(t);
  let running: TestService | null = null;
  return async (more: Loose = {}, options: TestOptions = {}) => {
    await running?.kill();
    const manifest = {
      name: "Test",
      version: "1.0.0",
      store: `sqlite:${join(folder, "test.db")}`,
      providers: { fake: SCRIPTED },
      memory: { default: {} },
      ...more,
      agents: {
        quick: { model: "fake/echo" },
        durable: { model: "fake/echo", durable: true },
        slow: { model: "fake/slow", durable: true },
        ...more.agents,
      },
    };
    running = await startService(t, manifest, options);
    return running;
  };
}

const dataOf = async (reply: Response, status = 200): Promise<Loose> => {
  const body = (await reply.json()) as { data: Loose; error?: string };
  assert.equal(reply.status, status, body.error);
  return body.data;
};

/** The events of a stream that has ended. */
async function events(reply: Response): Promise<{ id: number; part: Loose }[]> {
  assert.equal(reply.status, 200);
  return [...(await reply.text()).matchAll(/id: (\d+)\ndata: (.*)\n/g)].map(([, id, data]) => ({
    id: Number(id),
    part: JSON.parse(data!),
  }));
}

const textOf = (all: { part: Loose }[]) => all.map(({ part }) => part.delta ?? "").join("");

test("POST /agents/:id/text of a durable agent answers as another's, and GET .../runs/:runId has what it gave", async (t) => {
  const service = await (await restarts(t))();
  for (const agent of ["quick", "durable"]) {
    const reply = await service.post(`/agents/${agent}/text`, {
      input: "hi",
      options: { userId: "u", conversationId: "c" },
    });
    const id = reply.headers.get("x-run-id");
    const data = await dataOf(reply);
    if (agent === "quick") {
      assert.equal(id, null, "it is not kept, and nobody can read it");
      continue;
    }
    assert.match(id ?? "", /^[0-9a-f]{32}$/);
    const record = await service.get(`/agents/${agent}/runs/${id}`);
    const run = await dataOf(record);
    // The record has the counts once; those of the reply are beside the AI SDK's names.
    const { inputTokens: _, outputTokens: __, ...usage } = data.usage;
    assert.deepEqual(
      { ...run, startTime: 0, endTime: 0 },
      {
        runId: id,
        agentId: "durable",
        status: "completed",
        startTime: 0,
        endTime: 0,
        userId: "u",
        conversationId: "c",
        usage,
        output: data.text,
        approvals: [],
      },
    );
    assert.deepEqual(await dataOf(await service.get("/agents/durable/runs")), [run]);
    assert.deepEqual(await dataOf(await service.get("/agents/durable/runs?status=error")), []);
    assert.equal((await service.get(`/agents/quick/runs/${id}`)).status, 404, "the run of another agent");
    const all = await events(await service.get(`/agents/durable/runs/${id}/stream`));
    assert.deepEqual(
      all.map(({ id }) => id),
      all.map((_, index) => index + 1),
    );
    assert.equal(all[0]!.part.type, "start");
    assert.equal(all.at(-1)!.part.type, "finish");
    assert.equal(textOf(all), data.text);
  }
});

test("GET /workflows/executions and /workflows/:id/... know nothing of runs", async (t) => {
  const service = await (await restarts(t))({ workflows: { w: { steps: [{ id: "s", andThen: { set: 1 } }] } } });
  const id = (await service.post("/agents/durable/text", { input: "hi", options: { runId: "mine" } })).headers.get(
    "x-run-id",
  );
  assert.equal(id, "mine");
  assert.deepEqual(await dataOf(await service.get("/workflows/executions")), []);
  assert.equal((await service.get("/workflows/executions?workflowId=agent:durable")).status, 404);
  for (const execution of ["mine", "run%2Fmine"])
    for (const workflow of ["agent:durable", "w"])
      assert.equal((await service.get(`/workflows/${workflow}/executions/${execution}/state`)).status, 404);
  const named = await service.post("/workflows/w/execute", { input: {}, options: { executionId: "mine" } });
  assert.equal(named.status, 200, "ids of runs are not taken for executions");
  assert.doesNotMatch(await (await service.get("/metrics")).text(), /agent:durable/);
});

test("options.runId that a run has already: 409, whichever endpoint asks", async (t) => {
  const service = await (await restarts(t))();
  assert.equal((await service.post("/agents/durable/text", { input: "hi", options: { runId: "r" } })).status, 200);
  const schema = { type: "object" };
  for (const agent of ["durable", "quick"])
    for (const path of ["text", "stream", "chat", "object", "stream-object"]) {
      const reply = await service.post(`/agents/${agent}/${path}`, { input: "hi", schema, options: { runId: "r" } });
      assert.equal(reply.status, 409, `${agent}/${path}: ${await reply.text()}`);
    }
});

test("options.background: 202 with the id of a run that goes on; not for streams", async (t) => {
  const service = await (await restarts(t))();
  const reply = await service.post("/agents/quick/text", { input: "hi", options: { background: true } });
  const { runId, ...rest } = await dataOf(reply, 202);
  assert.deepEqual(rest, { status: "running" });
  assert.equal(reply.headers.get("x-run-id"), runId);
  const path = `/agents/quick/runs/${runId}`;
  await until(async () => (await dataOf(await service.get(path))).status === "completed", "the end");
  const refused = await service.post("/agents/quick/stream", { input: "hi", options: { background: true } });
  assert.equal(refused.status, 400);
});

test("GET .../runs/:runId/stream: readers see each part once and in order, wherever they begin", async (t) => {
  const service = await (await restarts(t))();
  const { runId } = await dataOf(
    await service.post("/agents/slow/text", { input: "hi", options: { background: true } }),
    202,
  );
  const path = `/agents/slow/runs/${runId}/stream`;
  const [one, two] = await Promise.all([service.get(path).then(events), service.get(path).then(events)]);
  assert.deepEqual(one, two);
  assert.ok(one.filter(({ part }) => part.type === "text-delta").length > 1, "they come while the model writes");
  assert.deepEqual(await events(await service.get(path)), one);
  for (const from of [1, 3, one.length]) {
    assert.deepEqual(await events(await service.get(`${path}?fromSequence=${from}`)), one.slice(from));
  }
});

test("POST .../runs/:runId/cancel: what was said is kept, and a second time is 400", async (t) => {
  const service = await (await restarts(t))();
  const options = { background: true, userId: "u", conversationId: "c" };
  const { runId } = await dataOf(await service.post("/agents/slow/text", { input: "hi", options }), 202);
  const path = `/agents/slow/runs/${runId}`;
  const reading = service.get(`${path}/stream`).then(events);
  await until(async () => (await dataOf(await service.get(path))).status === "running", "the begin");
  assert.deepEqual(await dataOf(await service.post(`${path}/cancel`, {})), { cancelled: true });
  assert.equal((await dataOf(await service.get(path))).status, "cancelled");
  assert.deepEqual((await reading).at(-1)!.part, { type: "abort" });
  const again = await service.post(`${path}/cancel`, {});
  assert.equal(again.status, 400);
  assert.match(((await again.json()) as Loose).error, /the run is already cancelled/);
  assert.equal((await service.post("/agents/slow/runs/none/cancel", {})).status, 404);
});

test("a durable run whose process is killed goes on in the next one, or fails with recovery: fail", async (t) => {
  const start = await restarts(t);
  const agents = { failing: { model: "fake/slow", durable: true, recovery: "fail" } };
  const first = await start({ agents });
  const options = { userId: "u", conversationId: "c" };
  const ids: Record<string, string> = {};
  for (const agent of ["slow", "failing"]) {
    const memory = { userId: "u", conversationId: agent };
    const started = await first.post(`/agents/${agent}/text`, {
      input: "hi",
      options: { ...options, memory, background: true },
    });
    ids[agent] = (await dataOf(started, 202)).runId;
  }
  const second = await start({ agents });
  const statusOf = async (agent: string) => dataOf(await second.get(`/agents/${agent}/runs/${ids[agent]}`));
  await until(async () => (await statusOf("slow")).status === "completed", "the end");
  assert.match((await statusOf("slow")).output, /ten$/);
  assert.equal((await statusOf("failing")).status, "error");
  const messages = await dataOf(await second.get("/api/memory/conversations/slow/messages?userId=u"));
  assert.deepEqual(
    messages.messages.map(({ role }: Loose) => role),
    ["user", "assistant"],
  );
});

test("POST /a2a/:id reads how a run stands that works, which stays what was so when it was looked up, although the run ends a moment later", async (t) => {
  const model = heldModel(t);
  const agents = { slow: { model: "held/any", durable: true } };
  const providers = { fake: SCRIPTED, held: model.settings };
  const service = await (await restarts(t))({ providers, agents }, { plugins: [model.plugins] });
  model.hold("hi");
  const begun = await service.post("/agents/slow/text", { input: "hi", options: { background: true } });
  const { runId } = await dataOf(begun, 202);
  const runs = service.booted.service!.runs.for(EVERYTHING);
  const standing = await runs.standing("slow", runId);
  model.release("hi");
  await until(async () => (await runs.get("slow", runId)).status === "completed", "the end of the run");
  assert.deepEqual([standing.state.status, standing.state.endedAt], ["running", null]);
  // Whoever is told of the end is given what was said, too.
  const after = await runs.standing("slow", runId);
  const said: Loose[] = [];
  await after.said(0)({ open() {}, send: (json) => void said.push(JSON.parse(json)), closed: false, onLeave() {} });
  assert.ok(after.state.endedAt !== null);
  assert.equal(said.map(({ delta = "" }) => delta).join(""), "half 1 rest 1");
});
