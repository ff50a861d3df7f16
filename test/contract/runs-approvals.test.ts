/** Kept runs, and agents in workflow steps, whose tools wait for a person's approval: they come to rest, and go on with the answer. */
import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { PAYS, ran, restarts, serveApprovals } from "../support/approvals.ts";
import { pluginFolder } from "../support/plugin-folder.ts";
import { until } from "../support/probe.ts";
import { dataOf, type Loose } from "../support/served-upstream.ts";
import { parseEvents, type TestService } from "../support/service.ts";

beforeEach(() => void ran.splice(0));

const MANIFEST = {
  memory: { default: {} },
  providers: {
    demo: {
      use: "scripted",
      replies: [
        ...PAYS,
        { when: "delegate", call: { tool: "delegate_task", input: { agentId: "clerk", task: "pay 9" } } },
      ],
    },
  },
  agents: {
    assistant: { model: "demo/echo", memory: false },
    clerk: { model: "demo/echo", tools: ["pay"], durable: true },
    chief: { model: "demo/echo", subAgents: ["clerk"], durable: true },
  },
  workflows: {
    asks: { steps: [{ id: "ask", andAgent: { agent: "clerk", prompt: "pay {{ input.amount }}" } }] },
    delegates: { steps: [{ id: "ask", andAgent: { agent: "chief", prompt: "delegate" } }] },
  },
};

const open = (service: TestService): Promise<Loose[]> => dataOf(service.get("/approvals"));
const runOf = (service: TestService, agent: string, id: string): Promise<Loose> =>
  dataOf(service.get(`/agents/${agent}/runs/${id}`));
const answer = (service: TestService, id: string, body: object = { approved: true }) =>
  dataOf(service.post(`/approvals/${id}`, body));
const partsOf = async (service: TestService, agent: string, id: string, from = 0) =>
  parseEvents(await (await service.get(`/agents/${agent}/runs/${id}/stream?fromSequence=${from}`)).text()).map(
    ({ id, data }) => ({ number: Number(id), ...JSON.parse(data) }),
  );

async function begin(service: TestService, agent: string, input: string, options: object = {}): Promise<string> {
  const reply = await service.post(`/agents/${agent}/text`, { input, options: { background: true, ...options } });
  assert.equal(reply.status, 202, await reply.clone().text());
  const { runId } = ((await reply.json()) as Loose).data;
  return runId;
}

/** Waits until the run has this status. */
async function comesTo(service: TestService, agent: string, id: string, status: string): Promise<Loose> {
  let run: Loose;
  await until(async () => {
    run = await runOf(service, agent, id);
    return run.status === status;
  }, `the status ${status}`);
  return run;
}

test("POST /agents/:id/text in the background: a run whose tool needs approval waits, also for the next process, and the answer lets it go on", async (t) => {
  const start = await restarts(t, MANIFEST);
  const first = await start();
  const memory = { userId: "u", conversationId: "c" };
  const id = await begin(first, "clerk", "pay 5", { memory });
  const { approvals, endTime, output } = await comesTo(first, "clerk", id, "waiting");
  const [{ approvalId, toolCallId, ...asked }, ...more] = approvals;
  assert.deepEqual(
    [asked, more, endTime, output],
    [{ toolName: "pay", input: { amount: 5 } }, [], undefined, undefined],
  );
  assert.deepEqual(
    (await dataOf(first.get("/agents/clerk/runs?status=waiting"))).map(({ runId }: Loose) => runId),
    [id],
  );
  const [item] = await open(first);
  assert.deepEqual(
    [item.approvalId, item.runId, item.agentId, item.toolCallId, item.conversationId, item.userId],
    [approvalId, id, "clerk", toolCallId, "c", "u"],
  );
  assert.deepEqual([item.executionId, item.workflowId, item.stepId], [undefined, undefined, undefined]);
  const before = await partsOf(first, "clerk", id);
  assert.equal(before.at(-1).type, "tool-approval-request");
  // Another agent says something in the conversation meanwhile: what its own user says to this one would end the run.
  await dataOf(first.post("/agents/chief/text", { input: "hello", options: { memory } }));
  assert.deepEqual(ran, []);

  const second = await start();
  assert.equal((await runOf(second, "clerk", id)).status, "waiting");
  await answer(second, approvalId);
  const ended = await comesTo(second, "clerk", id, "completed");
  assert.deepEqual([ran, ended.approvals], [[5], []]);
  const all = await partsOf(second, "clerk", id);
  assert.deepEqual(all.slice(0, before.length), before, "what was read before stays");
  assert.deepEqual(
    all.map(({ number }) => number),
    all.map((_, index) => index + 1),
  );
  const types = all.map(({ type }) => type).filter((type) => !type.startsWith("text-"));
  assert.deepEqual(types.slice(-6), [
    "tool-approval-request",
    "tool-result",
    "finish-step",
    "start-step",
    "finish-step",
    "finish",
  ]);
  const { messages } = await dataOf(second.get("/api/memory/conversations/c/messages?userId=u"));
  assert.deepEqual(
    messages.map(({ role }: Loose) => role),
    ["user", "assistant", "user", "assistant"],
  );
  const call = messages[1].parts.find(({ type }: Loose) => type === "tool-pay");
  assert.deepEqual([call.state, call.output.paid], ["output-available", 5]);
  assert.equal((await dataOf(second.get("/agents/clerk/history"))).entries.length, 1, "the run is in it once");
});

test("POST /agents/:id/text of a durable agent: the reply ends with the question, and the run goes on with the answer", async (t) => {
  const service = await (await restarts(t, MANIFEST))();
  const reply = await service.post("/agents/clerk/text", { input: "pay 5" });
  const { finishReason, approvals } = await dataOf(reply.clone());
  assert.deepEqual([finishReason, approvals[0].toolName], ["tool-calls", "pay"]);
  const id = reply.headers.get("x-run-id")!;
  assert.equal((await runOf(service, "clerk", id)).status, "waiting");
  await answer(service, approvals[0].approvalId, { approved: true, input: { amount: 4 } });
  await comesTo(service, "clerk", id, "completed");
  assert.deepEqual(ran, [4]);
});

test("POST /agents/:id/stream of a durable agent ends with the question; its reader goes on behind that once it is answered", async (t) => {
  const service = await (await restarts(t, MANIFEST))();
  const reply = await service.post("/agents/clerk/stream", { input: "pay 5" });
  const seen = parseEvents(await reply.text());
  const last = JSON.parse(seen.at(-1)!.data);
  assert.equal(last.type, "tool-approval-request");
  const id = reply.headers.get("x-run-id")!;
  await answer(service, last.approvalId, { approved: false, reason: "too much" });
  await comesTo(service, "clerk", id, "completed");
  const rest = await partsOf(service, "clerk", id, Number(seen.at(-1)!.id));
  assert.deepEqual([rest[0].type, rest[0].reason, rest.at(-1).type], ["tool-output-denied", "too much", "finish"]);
  assert.deepEqual(ran, []);
});

test("POST /agents/:id/chat of a durable agent ends with the question and brings the answer itself, as a chat hook does", async (t) => {
  const service = await (await restarts(t, MANIFEST))();
  const reply = await service.post("/agents/clerk/chat", { input: "pay 5" });
  const chunks = parseEvents(await reply.text()).map(({ data }) => (data === "[DONE]" ? {} : JSON.parse(data)));
  const { approvalId, toolCallId } = chunks.find(({ type }) => type === "tool-approval-request");
  const id = reply.headers.get("x-run-id")!;
  assert.equal((await runOf(service, "clerk", id)).status, "waiting");
  const approval = { id: approvalId, approved: true };
  const part = { type: "tool-pay", toolCallId, state: "approval-responded", input: { amount: 5 }, approval };
  const messages = [
    { role: "user", parts: [{ type: "text", text: "pay 5" }] },
    { id: "a1", role: "assistant", parts: [{ type: "step-start" }, part] },
  ];
  const again = await service.post("/agents/clerk/chat", { messages });
  assert.match(await again.text(), /"tool-output-available"/);
  assert.equal(again.headers.get("x-run-id"), id, "the same run goes on");
  assert.deepEqual([ran, (await runOf(service, "clerk", id)).status], [[5], "completed"]);
});

test("POST /approvals/:approvalId: of two calls of one step each is answered for itself, and the run waits for both", async (t) => {
  const start = await restarts(t, MANIFEST);
  const first = await start();
  const id = await begin(first, "clerk", "pay both");
  const { approvals } = await comesTo(first, "clerk", id, "waiting");
  const of = (amount: number) => approvals.find(({ input }: Loose) => input.amount === amount).approvalId;
  await answer(first, of(2));
  await until(() => ran.length === 1, "the second call");
  const second = await start();
  const left = await comesTo(second, "clerk", id, "waiting");
  assert.deepEqual(
    left.approvals.map(({ approvalId }: Loose) => approvalId),
    [of(1)],
  );
  await answer(second, of(1));
  await comesTo(second, "clerk", id, "completed");
  assert.deepEqual(ran, [2, 1], "each of them ran once");
  const types = (await partsOf(second, "clerk", id)).map(({ type }) => type);
  assert.equal(types.filter((type) => type === "tool-approval-request").length, 2, "each question is told once");
});

test("POST /agents/:id/text: a run waits for the approval of a sub-agent's tool", async (t) => {
  const start = await restarts(t, MANIFEST);
  const id = await begin(await start(), "chief", "delegate");
  const service = await start();
  const { approvals } = await comesTo(service, "chief", id, "waiting");
  assert.deepEqual(
    approvals.map(({ input }: Loose) => input),
    [{ amount: 9 }],
  );
  await answer(service, approvals[0].approvalId);
  await comesTo(service, "chief", id, "completed");
  assert.deepEqual(ran, [9]);
});

test("GET /agents/:id/runs/:runId: a run whose question nobody answers in time goes on with a no", async (t) => {
  const service = await (await restarts(t, { ...MANIFEST, pay: { expires: "50ms" } }))();
  const id = await begin(service, "clerk", "pay 5");
  await until(async () => {
    // The list looks what has expired; without it that is noticed some seconds later.
    await open(service);
    return (await runOf(service, "clerk", id)).status === "completed";
  }, "the end");
  const denied = (await partsOf(service, "clerk", id)).find(({ type }) => type === "tool-output-denied");
  assert.match(denied.reason, /has expired/);
  assert.deepEqual(ran, []);
});

test("POST /agents/:id/runs/:runId/cancel: a run that waits is cancelled, and an answer after that runs nothing", async (t) => {
  const service = await (await restarts(t, MANIFEST))();
  const id = await begin(service, "clerk", "pay 5");
  const { approvals } = await comesTo(service, "clerk", id, "waiting");
  await dataOf(service.post(`/agents/clerk/runs/${id}/cancel`, {}));
  const late = await service.post(`/approvals/${approvals[0].approvalId}`, { approved: true });
  assert.equal(late.status, 409);
  await until(
    async () => (await service.service.store.scan({ prefix: "ar/", limit: 1 })).length === 0,
    "the end of the waiting",
  );
  const run = await runOf(service, "clerk", id);
  assert.deepEqual([run.status, run.approvals, ran], ["cancelled", [], []]);
  assert.equal((await partsOf(service, "clerk", id)).at(-1).type, "abort");
});

/** Fails the first time it is asked, then asks for a payment. */
const FITFUL = `let asked = 0;
  const usage = { inputTokens: { total: 1 }, outputTokens: { total: 1 } };
  export default { kind: "provider", create: () => ({ languageModel: (modelId) => ({
    specificationVersion: "v3", provider: "fitful", modelId, supportedUrls: {},
    doGenerate: async () => { throw new Error("not used"); },
    async doStream({ prompt }) {
      if (asked++ === 0) throw new Error("not the first time");
      const isAnswered = prompt.some(({ role }) => role === "tool");
      const said = isAnswered ? [] : [{ type: "tool-call", toolCallId: "call-" + asked, toolName: "pay", input: '{"amount":7}' }];
      const finishReason = { unified: isAnswered ? "stop" : "tool-calls", raw: undefined };
      const parts = [{ type: "stream-start", warnings: [] }, ...said, { type: "finish", usage, finishReason }];
      return { stream: new ReadableStream({ start(to) { for (const part of parts) to.enqueue(part); to.close(); } }) };
    } }) }) };`;

test("POST /workflows/:id/execute: andAgent that waits in its second try asks one question, and goes on with that try", async (t) => {
  const service = await serveApprovals(
    t,
    {
      providers: { demo: { use: "scripted" }, fake: { use: "fitful" } },
      agents: { clerk: { model: "fake/m", tools: ["pay"], memory: false } },
      workflows: {
        asks: {
          steps: [{ id: "ask", andAgent: { agent: "clerk", prompt: "go" }, retry: { attempts: 2, delay: "1ms" } }],
        },
      },
    },
    { plugins: [pluginFolder(t, { "providers/fitful.mjs": FITFUL })] },
  );
  const { executionId, suspension } = await dataOf(service.post("/workflows/asks/execute", { input: {} }));
  await answer(service, suspension.suspendData.approvalId);
  await until(async () => {
    const { status } = await dataOf(service.get(`/workflows/asks/executions/${executionId}/state`));
    return status === "completed";
  }, "the end");
  assert.deepEqual([ran, await open(service)], [[7], []]);
});

for (const [workflow, amount] of [
  ["asks", 5],
  ["delegates", 9],
] as const)
  test(`POST /workflows/:id/execute of "${workflow}": andAgent suspends for the approval of a tool, and the answer resumes it in the next process`, async (t) => {
    const start = await restarts(t, MANIFEST);
    const first = await start();
    const { executionId, status, suspension } = await dataOf(
      first.post(`/workflows/${workflow}/execute`, { input: { amount } }),
    );
    const [{ approvalId, ...asked }] = await open(first);
    assert.deepEqual([status, suspension.reason], ["suspended", 'tool "pay" needs approval']);
    assert.deepEqual(suspension.suspendData, { approvalId, toolName: "pay", input: { amount } });
    assert.deepEqual([asked.workflowId, asked.executionId, asked.stepId], [workflow, executionId, "ask"]);
    // Whoever resumes it without an answer makes it ask again.
    const again = await dataOf(first.post(`/workflows/${workflow}/executions/${executionId}/resume`, {}));
    assert.equal(again.suspension.suspendData.approvalId, approvalId);
    const second = await start();
    await answer(second, approvalId);
    await until(async () => {
      const state = await dataOf(second.get(`/workflows/${workflow}/executions/${executionId}/state`));
      return state.status === "completed";
    }, "the end");
    assert.deepEqual(ran, [amount]);
  });
