/** Runs that ask a person, of agents that are not durable: each is kept from its question on, and goes on by itself when it is answered. */
import assert from "node:assert/strict";
import { join } from "node:path";
import { beforeEach, describe, test } from "node:test";
import { AUTH, approvalManifest, as, CONSOLE, PAYS, ran, restarts, serveApprovals } from "../support/approvals.ts";
import { until } from "../support/probe.ts";
import { reload } from "../support/reload.ts";
import { dataOf, type Loose } from "../support/served-upstream.ts";
import { parseEvents, type TestService } from "../support/service.ts";
import { temporaryFolder } from "../support/storage.ts";

beforeEach(() => void ran.splice(0));

const MANIFEST = {
  memory: { default: {} },
  providers: {
    demo: {
      use: "scripted",
      replies: [...PAYS],
    },
  },
  agents: {
    clerk: { model: "demo/echo", tools: ["pay"] },
    kept: { model: "demo/echo", tools: ["pay"], durable: true },
  },
};

const MEMORY = { userId: "u", conversationId: "c" };
const open = (service: TestService, headers = {}): Promise<Loose[]> => dataOf(service.get("/approvals", headers));
const decide = (service: TestService, id: string, body: object = { approved: true }, headers = {}) =>
  dataOf(service.post(`/approvals/${id}`, body, headers));
const runOf = (service: TestService, id: string, agent = "clerk", headers = {}): Promise<Loose> =>
  dataOf(service.get(`/agents/${agent}/runs/${id}`, headers));
const comesTo = async (service: TestService, id: string, status: string, agent = "clerk", headers = {}) => {
  let run: Loose;
  await until(async () => {
    run = await runOf(service, id, agent, headers);
    return run.status === status;
  }, `the status ${status}`);
  return run;
};
const stored = async (service: TestService): Promise<Loose[]> =>
  (await dataOf(service.get("/api/memory/conversations/c/messages?userId=u&agentId=clerk"))).messages;
const chunksOf = async (reply: Response): Promise<Loose[]> =>
  parseEvents(await reply.text()).flatMap(({ data }) => (data === "[DONE]" ? [] : [JSON.parse(data)]));
const typesOf = (events: Loose[]) => events.map(({ type }) => type);

interface Door {
  /** Asks; gives the reply. */
  ask(service: TestService, agent: string): Promise<Response>;
  /** Brings the answer of its user with its next request. */
  answer(service: TestService, asked: Loose, agent: string, approved?: boolean): Promise<Response>;
}

const userSays = { id: "u1", role: "user", parts: [{ type: "text", text: "pay 5" }] };
const withAnswer = ({ approvalId: id, toolCallId, input }: Loose, approved: boolean) => {
  const part = { type: "tool-pay", toolCallId, state: "approval-responded", input, approval: { id, approved } };
  return [userSays, { id: "a1", role: "assistant", parts: [{ type: "step-start" }, part] }];
};
const posts = (path: string): Door => ({
  ask: (service, agent) => service.post(`/agents/${agent}/${path}`, { input: [userSays], options: { memory: MEMORY } }),
  answer: (service, asked, agent, approved = true) =>
    service.post(`/agents/${agent}/${path}`, { input: withAnswer(asked, approved), options: { memory: MEMORY } }),
});
const agUi = (service: TestService, agent: string, runId: string, messages: object[], more: object = {}) =>
  service.post(`/agents/${agent}/ag-ui`, { threadId: "c", runId, messages, ...more });
const DOORS: Readonly<Record<string, Door>> = {
  text: posts("text"),
  stream: posts("stream"),
  chat: posts("chat"),
  "ag-ui": {
    ask: (service, agent) => agUi(service, agent, "r1", [{ id: "u1", role: "user", content: "pay 5" }]),
    answer: (service, { approvalId, toolCallId, input }, agent, approved = true) => {
      const call = { id: toolCallId, type: "function", function: { name: "pay", arguments: JSON.stringify(input) } };
      const messages = [
        { id: "u1", role: "user", content: "pay 5" },
        { id: "a1", role: "assistant", toolCalls: [call] },
      ];
      const resume = [{ interruptId: approvalId, status: "resolved", payload: { approved } }];
      return agUi(service, agent, "r2", messages, { resume });
    },
  },
};

for (const agent of ["clerk", "kept"])
  for (const [name, { ask, answer }] of Object.entries(DOORS))
    describe(`POST /agents/:id/${name} of ${agent === "kept" ? "a durable agent" : "an agent that is not durable"}`, () => {
      test("a run that asks waits, also for the next process, and goes on by itself when POST /approvals/:approvalId answers", async (t) => {
        const start = await restarts(t, MANIFEST);
        const first = await start();
        await (await ask(first, agent)).text();
        const [{ approvalId, runId, input }] = await open(first);
        assert.equal((await runOf(first, runId, agent)).status, "waiting");
        assert.deepEqual([input, ran], [{ amount: 5 }, []]);
        const second = await start();
        await decide(second, approvalId);
        const { output, approvals } = await comesTo(second, runId, "completed", agent);
        assert.match(output, /"paid":5/);
        assert.deepEqual([approvals, ran], [[], [5]]);
        const { entries } = await dataOf(second.get(`/agents/${agent}/history`));
        assert.deepEqual(
          entries.map(({ id, status }: Loose) => [id, status]),
          [[runId, "completed"]],
        );
      });

      test("the answer in its next request goes on with the run that asked, also in the next process", async (t) => {
        const start = await restarts(t, MANIFEST);
        await (await ask(await start(), agent)).text();
        const second = await start();
        const [asked] = await open(second);
        const reply = await answer(second, asked, agent);
        assert.equal(reply.headers.get("x-run-id"), asked.runId);
        assert.match(await reply.text(), /paid/);
        assert.deepEqual([ran, (await runOf(second, asked.runId, agent)).status], [[5], "completed"]);
        await (await answer(second, asked, agent)).text();
        assert.deepEqual(ran, [5], "the same answer again runs nothing");
      });

      test("a no in its next request is told to the model of the run that asked", async (t) => {
        const service = await serveApprovals(t, MANIFEST);
        await (await ask(service, agent)).text();
        const [asked] = await open(service);
        await (await answer(service, asked, agent, false)).text();
        assert.equal((await comesTo(service, asked.runId, "completed", agent)).status, "completed");
        assert.deepEqual(ran, []);
      });
    });

test("POST /agents/:id/text: the reply names the run and what it asks, and a run that asks nothing is not kept", async (t) => {
  const service = await serveApprovals(t, MANIFEST);
  const reply = await service.post("/agents/clerk/text", { input: "pay 5", options: { memory: MEMORY } });
  const { finishReason, approvals, runId, messageId, userMessageId } = await dataOf(reply.clone());
  assert.deepEqual([finishReason, approvals.length], ["tool-calls", 1]);
  assert.deepEqual(
    [reply.headers.get("x-run-id"), messageId, userMessageId],
    [runId, `msg_${runId}`, `msg_${runId}_user`],
  );
  const other = await service.post("/agents/clerk/text", { input: "hello" });
  assert.deepEqual([(await dataOf(other.clone())).runId, other.headers.get("x-run-id")], [undefined, null]);
  const runs = await dataOf(service.get("/agents/clerk/runs"));
  assert.deepEqual(
    runs.map(({ runId }: Loose) => runId),
    [runId],
  );
});

test("POST /agents/:id/text: what a run that asked was told afterwards stands in its old place of the conversation", async (t) => {
  const service = await serveApprovals(t, MANIFEST);
  const { runId, approvals } = await dataOf(
    service.post("/agents/clerk/text", { input: "pay 5", options: { memory: MEMORY } }),
  );
  await decide(service, approvals[0].approvalId, { approved: true, input: { amount: 4 } });
  await comesTo(service, runId, "completed");
  const messages = await stored(service);
  assert.deepEqual(
    messages.map(({ id, role }) => [id, role]),
    [
      [`msg_${runId}_user`, "user"],
      [`msg_${runId}`, "assistant"],
    ],
  );
  const call = messages[1].parts.find(({ type }: Loose) => type === "tool-pay");
  assert.deepEqual(
    [call.state, call.output.paid, call.approval],
    ["output-available", 4, { id: approvals[0].approvalId, approved: true }],
  );
});

test("GET /agents/:id/chat/:conversationId/stream follows a chat that goes on after an answer from the inbox", async (t) => {
  const manifest = structuredClone(MANIFEST) as Loose;
  manifest.providers.demo.firstDelay = "300ms";
  const service = await serveApprovals(t, manifest);
  const asked = await chunksOf(
    await service.post("/agents/clerk/chat", { input: "pay 5", options: { memory: MEMORY } }),
  );
  assert.deepEqual(typesOf(asked).slice(-3), ["tool-approval-request", "finish-step", "finish"]);
  assert.equal(asked.at(-1).finishReason, "tool-calls");
  const path = "/agents/clerk/chat/c/stream?userId=u";
  assert.equal((await service.get(path)).status, 204, "it waits");
  const [{ approvalId }] = await open(service);
  await decide(service, approvalId);
  const followed = await service.get(path);
  assert.equal(followed.status, 200);
  const chunks = await chunksOf(followed);
  assert.equal(chunks[0].messageId, asked[0].messageId, "the same message goes on");
  const types = typesOf(chunks);
  assert.ok(types.indexOf("tool-output-available") > types.indexOf("tool-approval-request"), types.join());
  assert.equal(chunks.at(-1).finishReason, "stop");
});

test("POST /agents/:id/chat: of two questions of one step one is answered in the inbox and one by the client, and the run goes on after both", async (t) => {
  const service = await serveApprovals(t, MANIFEST);
  await (await service.post("/agents/clerk/chat", { input: "pay both", options: { memory: MEMORY } })).text();
  const [one, two] = (await open(service)).sort((left, right) => left.input.amount - right.input.amount);
  await decide(service, one.approvalId);
  assert.equal((await comesTo(service, one.runId, "waiting")).approvals.length, 1);
  const part = ({ approvalId: id, toolCallId, input }: Loose, state: string, more: object) => ({
    type: "tool-pay",
    toolCallId,
    input,
    state,
    approval: { id, ...more },
  });
  const parts = [
    { type: "step-start" },
    part(one, "approval-requested", {}),
    part(two, "approval-responded", { approved: false, reason: "no" }),
  ];
  const messages = [userSays, { id: "a1", role: "assistant", parts }];
  const chunks = await chunksOf(await service.post("/agents/clerk/chat", { messages, options: { memory: MEMORY } }));
  const types = typesOf(chunks);
  assert.deepEqual([chunks[0].messageId, types.at(-1), chunks.at(-1).finishReason], ["a1", "finish", "stop"]);
  assert.ok(types.includes("tool-output-available") && types.includes("tool-output-denied"), types.join());
  assert.deepEqual(ran, [1]);
  assert.equal((await runOf(service, one.runId)).status, "completed");
});

test("POST /agents/:id/chat: the answer of another user admits nothing, and the run of the first goes on waiting", async (t) => {
  const service = await serveApprovals(t, { ...MANIFEST, auth: AUTH });
  const chat = async (body: object, who: string) =>
    chunksOf(
      await service.post("/agents/clerk/chat", { ...body, options: { memory: { conversationId: who } } }, as(who)),
    );
  await chat({ messages: [userSays] }, "ada");
  const [asked] = await open(service, as("ada"));
  const stolen = await chat({ messages: withAnswer(asked, true) }, "bob");
  assert.ok(typesOf(stolen).includes("tool-output-denied"), typesOf(stolen).join());
  assert.equal((await service.get(`/agents/clerk/runs/${asked.runId}`, as("bob"))).status, 404);
  assert.deepEqual([ran, (await runOf(service, asked.runId, "clerk", as("ada"))).status], [[], "waiting"]);
  await decide(service, asked.approvalId, { approved: true }, CONSOLE);
  await comesTo(service, asked.runId, "completed", "clerk", as("ada"));
  assert.deepEqual(ran, [5]);
});

test("POST /agents/:id/text: a run that asks with an id of the client's keeps it, and that id is taken", async (t) => {
  const service = await serveApprovals(t, MANIFEST);
  const say = (input: string) => service.post("/agents/clerk/text", { input, options: { runId: "mine" } });
  assert.equal((await dataOf(say("pay 5"))).runId, "mine");
  assert.equal((await runOf(service, "mine")).status, "waiting");
  assert.equal((await say("hello")).status, 409);
});

for (const approval of [true, false])
  test(`POST /reload between question and answer, after which the tool ${approval ? "still needs" : "needs no"} approval: the run goes on with what was asked`, async (t) => {
    const store = `sqlite:${join(await temporaryFolder(t), "test.db")}`;
    const service = await serveApprovals(t, { ...MANIFEST, store });
    const { runId, approvals } = await dataOf(service.post("/agents/clerk/text", { input: "pay 5" }));
    const next = approvalManifest({
      ...MANIFEST,
      store,
      pay: { approval },
      agents: { ...MANIFEST.agents, more: MANIFEST.agents.kept },
    });
    assert.equal((await reload(service, next)).status, 200);
    assert.deepEqual(ran, []);
    await decide(service, approvals[0].approvalId);
    await comesTo(service, runId, "completed");
    assert.deepEqual(ran, [5]);
  });

test("POST /agents/:id/stream: a client that leaves at the question leaves a run that waits", async (t) => {
  const service = await serveApprovals(t, MANIFEST);
  const leaving = new AbortController();
  const reply = await fetch(`${service.url}/agents/clerk/stream`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ input: "pay 5" }),
    signal: leaving.signal,
  });
  let text = "";
  for await (const chunk of reply.body!.pipeThrough(new TextDecoderStream())) {
    text += chunk;
    if (text.includes("tool-approval-request")) break;
  }
  leaving.abort();
  const [{ approvalId, runId }] = await open(service);
  await comesTo(service, runId, "waiting");
  await decide(service, approvalId);
  await comesTo(service, runId, "completed");
  assert.deepEqual(ran, [5]);
});
