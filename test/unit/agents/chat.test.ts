import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { agentsOf, assistant, caller, type Events, eventsOf, historyOf } from "../../support/agents.ts";
import { clientChecks } from "../../support/chunk-validators.ts";

const said = (text: string) => ({ id: "m1", role: "user", parts: [{ type: "text", text }] });

const RICH = [
  { type: "reasoning-start", id: "1" },
  { type: "reasoning-delta", id: "1", delta: "hm", providerMetadata: { p: { signature: "s" } } },
  { type: "reasoning-end", id: "1" },
  { type: "text-start", id: "2", providerMetadata: { p: {} } },
  { type: "text-delta", id: "2", delta: "hi", providerMetadata: { p: {} } },
  { type: "text-end", id: "2" },
  { type: "source", sourceType: "url", id: "s1", url: "https://example.com", providerMetadata: { p: {} } },
  { type: "source", sourceType: "document", id: "s2", mediaType: "application/pdf", title: "D", filename: "d.pdf" },
  { type: "file", mediaType: "image/png", data: "AQID" },
  { type: "tool-input-start", id: "c", toolName: "search", providerExecuted: true },
  { type: "tool-input-delta", id: "c", delta: "{}" },
  { type: "tool-input-end", id: "c" },
  { type: "tool-call", toolCallId: "c", toolName: "search", input: "{}", providerExecuted: true },
  { type: "tool-result", toolCallId: "c", toolName: "search", result: { hits: 1 } },
  { type: "tool-call", toolCallId: "d", toolName: "search", input: "{}", providerExecuted: true },
  { type: "tool-result", toolCallId: "d", toolName: "search", result: "down", isError: true },
  { type: "raw", rawValue: 1 },
  {
    type: "finish",
    finishReason: { unified: "other", raw: "x" },
    usage: { inputTokens: { total: 1 }, outputTokens: { total: 1 } },
  },
];

const rich = async (t: TestContext): Promise<Events> => {
  const agents = await agentsOf(t, {
    providers: { p: { use: "parts", steps: { m: [RICH] } } },
    agents: { a: { model: "p/m" } },
  });
  return eventsOf(agents.get("a")!.chat({ input: "go" }, caller()));
};

test("the chunks of a chat: none that the strict readers among the clients refuse", async (t) => {
  const events = await rich(t);
  assert.deepEqual(events.types(), [
    "start",
    "start-step",
    "reasoning-start",
    "reasoning-delta",
    "reasoning-end",
    "text-start",
    "text-delta",
    "text-end",
    "source-url",
    "source-document",
    "file",
    "tool-input-start",
    "tool-input-delta",
    "tool-input-available",
    "tool-output-available",
    "tool-input-available",
    "tool-output-error",
    "finish-step",
    "finish",
  ]);
  const chunks = [...events.list, { type: "abort" }];
  for (const [name, accepts] of await clientChecks()) {
    for (const chunk of chunks) assert.ok(await accepts(chunk), `${name} refuses ${JSON.stringify(chunk)}`);
  }
  assert.deepEqual(events.list.at(-1), { type: "finish", finishReason: "other" });
  assert.equal(events.of("file")[0]!.url, "data:image/png;base64,AQID");
});

test("a chat takes the hook's id for the conversation when options name none", async (t) => {
  const agent = await assistant(t);
  const conversation = async (body: object) => {
    await eventsOf(agent.chat({ id: "chat-1", messages: [said("hi")], ...body }, caller()));
    return (await historyOf(agent, 0, 1)).entries[0]!.conversationId;
  };
  assert.equal(await conversation({}), "chat-1");
  assert.equal(await conversation({ options: { conversationId: "old" } }), "old");
  assert.equal(await conversation({ options: { memory: { conversationId: "new" } } }), "new");
});

test("a chat goes on with the id of an assistant message that stands last", async (t) => {
  const agent = await assistant(t);
  const last = { id: "msg_1", role: "assistant", parts: [{ type: "text", text: "so far" }] };
  const events = await eventsOf(agent.chat({ messages: [said("hi"), last] }, caller()));
  assert.equal(events.list[0]!.messageId, "msg_1");
});
