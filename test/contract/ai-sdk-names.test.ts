/** What clients of VoltAgent and of the AI SDK read beside the names of the contract, and what is stored without it. */
import assert from "node:assert/strict";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { FIXTURES } from "../support/fixtures.ts";
import { parseEvents, startService, type TestService } from "../support/service.ts";
import { temporaryFolder } from "../support/storage.ts";

// biome-ignore lint/suspicious/noExplicitAny: replies of many shapes
type Loose = any;

const CALL = { tool: "sum", input: { a: 1, b: 2 } };
const MANIFEST = {
  name: "Test",
  version: "1.0.0",
  providers: {
    fake: {
      use: "scripted",
      models: {
        says: { replies: [{ when: ".", text: "Hello there" }] },
        asks: { replies: [{ when: ".", call: CALL }] },
      },
    },
  },
  memory: { default: {} },
  tools: { sum: { use: "add", approval: true } },
  agents: {
    assistant: { model: "fake/says" },
    durable: { model: "fake/says", durable: true },
    asking: { model: "fake/asks", tools: ["sum"] },
  },
};

const serve = async (t: TestContext): Promise<TestService> => {
  const store = `sqlite:${join(await temporaryFolder(t), "test.db")}`;
  return startService(t, { ...MANIFEST, store }, { plugins: [FIXTURES] });
};
const dataOf = async (reply: Response): Promise<Loose> => ((await reply.json()) as { data: Loose }).data;
const eventsOf = async (reply: Response): Promise<Loose[]> =>
  parseEvents(await reply.text()).map(({ data }) => JSON.parse(data));

/** With the names of both. */
const assertNames = (usage: Loose) =>
  assert.deepEqual(
    [usage.inputTokens, usage.outputTokens],
    [usage.promptTokens, usage.completionTokens],
    JSON.stringify(usage),
  );
const assertOwnNames = (usage: Loose) => {
  assert.equal(typeof usage.promptTokens, "number");
  assert.deepEqual([usage.inputTokens, usage.outputTokens], [undefined, undefined]);
};

test("usage has inputTokens and outputTokens beside promptTokens and completionTokens on /text, /stream and the stream of a kept run; what is stored has them once", async (t) => {
  const service = await serve(t);
  for (const id of ["assistant", "durable"]) {
    const reply = await service.post(`/agents/${id}/text`, { input: "x" });
    assertNames((await dataOf(reply)).usage);
    const events = await eventsOf(await service.post(`/agents/${id}/stream`, { input: "x" }));
    assertNames(events.find(({ type }) => type === "finish-step").usage);
    assertNames(events.at(-1).totalUsage);
  }
  const [run] = await dataOf(await service.get("/agents/durable/runs"));
  const raw = await eventsOf(await service.get(`/agents/durable/runs/${run.runId ?? run.id}/stream`));
  assertNames(raw.at(-1).totalUsage);
  assertOwnNames(run.usage);
  const { entries } = await dataOf(await service.get("/agents/assistant/history"));
  assertOwnNames(entries[0].usage);
});

test("POST /agents/:id/stream with options.textInDeltas: deltas have text beside delta; without it they do not", async (t) => {
  const service = await serve(t);
  const deltas = async (id: string, options?: object) => {
    const events = await eventsOf(await service.post(`/agents/${id}/stream`, { input: "x", options }));
    const found = events.filter(({ type }) => type === "text-delta");
    assert.ok(found.length > 0);
    return found;
  };
  for (const id of ["assistant", "durable"]) {
    for (const each of await deltas(id)) assert.equal("text" in each, false);
    const both = await deltas(id, { textInDeltas: true });
    for (const { text, delta } of both) assert.equal(text, delta);
    assert.equal(both.map(({ text }) => text).join(""), "Hello there");
  }
});

test("POST /agents/:id/stream: the part tool-approval-request has its toolCall as the AI SDK's stream has it; /text and /chat are as before", async (t) => {
  const service = await serve(t);
  const events = await eventsOf(await service.post("/agents/asking/stream", { input: "x" }));
  const { approvalId, toolCallId, toolName, input, toolCall } = events.find(
    ({ type }) => type === "tool-approval-request",
  );
  assert.equal(typeof approvalId, "string");
  assert.deepEqual({ toolName, input }, { toolName: CALL.tool, input: CALL.input });
  assert.deepEqual(toolCall, { type: "tool-call", toolCallId, toolName, input });
  const { approvals } = await dataOf(await service.post("/agents/asking/text", { input: "x" }));
  assert.deepEqual(Object.keys(approvals[0]).sort(), ["approvalId", "input", "toolCallId", "toolName"]);
});

test("memory.options.messageMetadataPersistence: the stored answer has usage and finishReason in its metadata, or the one that is wanted; by default neither", async (t) => {
  const service = await serve(t);
  const cases: [unknown, string[]][] = [
    [undefined, []],
    [false, []],
    [true, ["finishReason", "usage"]],
    [{ usage: true }, ["usage"]],
    [{ finishReason: true, usage: false }, ["finishReason"]],
  ];
  for (const id of ["assistant", "durable"])
    for (const [index, [messageMetadataPersistence, keys]] of cases.entries()) {
      const conversationId = `${id}-${index}`;
      const memory = { userId: "ada", conversationId, options: { messageMetadataPersistence } };
      const { usage } = await dataOf(await service.post(`/agents/${id}/text`, { input: "x", options: { memory } }));
      const path = `/api/memory/conversations/${conversationId}/messages?agentId=${id}`;
      const { messages } = await dataOf(await service.get(path));
      const [user, answer] = messages;
      const { metadata = {} } = answer;
      assert.deepEqual(Object.keys(metadata).sort(), keys);
      if (keys.includes("finishReason")) assert.equal(metadata.finishReason, "stop");
      if (keys.includes("usage")) assert.equal(metadata.usage.promptTokens, usage.promptTokens);
      assert.deepEqual(user.metadata ?? {}, {});
    }
  const wrong = { memory: { options: { messageMetadataPersistence: "all" } } };
  const refused = await service.post("/agents/assistant/text", { input: "x", options: wrong });
  assert.equal(refused.status, 400);
  assert.match(((await refused.json()) as { error: string }).error, /messageMetadataPersistence/);
});
