import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import type { Agent } from "../../../core/agents/agent.ts";
import { agentsOf, assistant, caller, type Events, eventsOf, historyOf } from "../../support/agents.ts";
import { clientChecks } from "../../support/chunk-validators.ts";

const SUM = { when: "add", call: { tool: "add", input: { a: 2, b: 3 } }, then: "It is {{ result.sum }}." };

/** What the chat hooks of our users are made of, in the versions that they run. */
interface Client {
  DefaultChatTransport: new (
    options: object,
  ) => {
    sendMessages(options: object): Promise<ReadableStream<unknown>>;
  };
  readUIMessageStream(options: object): AsyncIterable<UiMessage>;
}
interface UiMessage {
  id: string;
  role: string;
  parts: Record<string, unknown>[];
}
const CLIENTS = ["ai-5", "ai-6.0.0", "ai", "ai-7"];

/** Sends the messages as the hook does, and gives the assistant's message that the client builds of our events. */
async function converse(client: Client, agent: Agent, messages: object[]): Promise<UiMessage> {
  let posted: { messages: unknown } | undefined;
  const transport = new client.DefaultChatTransport({
    api: "http://localhost/chat",
    fetch: async (_url: string, init: { body: string }) => {
      posted = JSON.parse(init.body);
      const events = await eventsOf(agent.chat(posted as object, caller()));
      const text = events.list.map((event, index) => `id: ${index + 1}\ndata: ${JSON.stringify(event)}\n\n`).join("");
      return new Response(`: \n\n${text}data: [DONE]\n\n`, { headers: { "content-type": "text/event-stream" } });
    },
  });
  const stream = await transport.sendMessages({
    chatId: "chat-1",
    messages,
    trigger: "submit-message",
    messageId: undefined,
    abortSignal: undefined,
  });
  let last: UiMessage | undefined;
  const onError = (error: unknown) => assert.fail(String(error));
  for await (const message of client.readUIMessageStream({ stream, onError, terminateOnError: true })) last = message;
  assert.deepEqual(posted!.messages, JSON.parse(JSON.stringify(messages)));
  return last!;
}

const said = (text: string) => ({ id: "m1", role: "user", parts: [{ type: "text", text }] });

for (const name of CLIENTS) {
  test(`POST /agents/:id/chat is read by ${name}: text, then a tool with its result, then the conversation goes on`, async (t) => {
    const client = (await import(name)) as Client;
    const agent = await assistant(
      t,
      { tools: ["add", "fail"] },
      {
        replies: [SUM, { when: "break", call: { tool: "fail" }, then: "sorry" }],
        provider: { chunks: 7 },
        tools: { add: { use: "add" }, fail: { use: "fail" } },
      },
    );
    const plain = await converse(client, agent, [said("hello there")]);
    assert.equal(plain.role, "assistant");
    assert.match(plain.id, /^msg_/);
    assert.deepEqual(
      plain.parts.map((part) => part.type),
      ["step-start", "text"],
    );
    assert.equal(plain.parts[1]!.text, "hello there");

    const sum = await converse(client, agent, [said("please add")]);
    const tool = sum.parts.find((part) => part.type === "tool-add")!;
    assert.equal(tool.state, "output-available");
    assert.deepEqual(tool.input, { a: 2, b: 3 });
    assert.deepEqual(tool.output, { sum: 5 });
    assert.equal(sum.parts.at(-1)!.text, "It is 5.");

    const failed = await converse(client, agent, [said("break it")]);
    const broken = failed.parts.find((part) => part.type === "tool-fail")!;
    assert.equal(broken.state, "output-error");
    assert.equal(broken.errorText, "the shop is closed");

    const again = await converse(client, agent, [said("please add"), sum, failed, { ...said("thanks"), id: "m2" }]);
    assert.equal(again.parts.at(-1)!.text, "thanks");
  });
}

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

test("POST /agents/:id/chat sends nothing that the strict readers among the clients refuse", async (t) => {
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

test("POST /agents/:id/chat takes the hook's id for the conversation when options name none", async (t) => {
  const agent = await assistant(t);
  const conversation = async (body: object) => {
    await eventsOf(agent.chat({ id: "chat-1", messages: [said("hi")], ...body }, caller()));
    return (await historyOf(agent, 0, 1)).entries[0]!.conversationId;
  };
  assert.equal(await conversation({}), "chat-1");
  assert.equal(await conversation({ options: { conversationId: "old" } }), "old");
  assert.equal(await conversation({ options: { memory: { conversationId: "new" } } }), "new");
});

test("POST /agents/:id/chat goes on with the id of an assistant message that stands last", async (t) => {
  const agent = await assistant(t);
  const last = { id: "msg_1", role: "assistant", parts: [{ type: "text", text: "so far" }] };
  const events = await eventsOf(agent.chat({ messages: [said("hi"), last] }, caller()));
  assert.equal(events.list[0]!.messageId, "msg_1");
});
