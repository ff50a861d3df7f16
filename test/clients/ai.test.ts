/** The real `ai` clients read `POST /agents/:id/chat` and write to it: the newest 5, 6.0.0, the newest 6 and 7. */
import assert from "node:assert/strict";
import { describe, type TestContext, test } from "node:test";
import { FIXTURES } from "../support/fixtures.ts";
import { calls, cutsAfter, failure, says, stallsAfter } from "../support/openai-upstream.ts";
import { soon } from "../support/providers.ts";
import { dataOf, type Loose, serveUpstream } from "../support/served-upstream.ts";
import { manifestWith, startService } from "../support/service.ts";
import { CLIENTS, chatOf, load } from "./chat.ts";

const TOOLS = { sum: { use: "add" }, fail: { use: "fail" } };
const CHAT = "/agents/assistant/chat";

const serve = (t: TestContext) =>
  serveUpstream(t, { tools: Object.keys(TOOLS) }, { tools: TOOLS }, { plugins: [FIXTURES] });
const showcase = (t: TestContext) => {
  const agent = { model: "all/everything", tools: Object.keys(TOOLS) };
  return startService(t, manifestWith(agent, { providers: { all: { use: "showcase" } }, tools: TOOLS }), {
    plugins: [FIXTURES],
  });
};

/** Parts without the ids and states that a client makes up. */
const bare = (parts: Loose[]) =>
  parts.map(({ id, state, providerMetadata, callProviderMetadata, ...part }: Loose) => part);

for (const name of CLIENTS) {
  describe(`the client ${name}`, async () => {
    const ai = await load(name);

    test("POST /agents/:id/chat: a text arrives whole, in the message that it belongs to", async (t) => {
      const { service, upstream } = await serve(t);
      upstream.replies(says("Hello there", { chunks: 4, delay: 5, reasoning: "Hm." }));
      const posted: Loose[] = [];
      const chat = chatOf(ai, service.url + CHAT, posted);
      await chat.sendMessage({ text: "Hi" });
      assert.equal(chat.error, undefined);
      assert.equal(chat.status, "ready");
      const [user, assistant, ...more] = chat.messages;
      assert.deepEqual(more, []);
      assert.equal(user.role, "user");
      assert.equal(assistant.role, "assistant");
      assert.match(assistant.id, /^\S+$/);
      assert.deepEqual(bare(assistant.parts), [
        { type: "step-start" },
        { type: "reasoning", text: "Hm." },
        { type: "text", text: "Hello there" },
      ]);
      assert.deepEqual(upstream.requests[0]!.body.messages.at(-1), { role: "user", content: "Hi" });
      assert.equal(posted[0].trigger, "submit-message");
      const { entries } = await dataOf(service.get("/agents/assistant/history"));
      assert.equal(entries[0].conversationId, posted[0].id, "the hook's id is the conversation");
    });

    test("POST /agents/:id/chat: tool calls, results and errors over several steps", async (t) => {
      const { service, upstream } = await serve(t);
      const both = [
        { id: "c1", name: "sum", input: { a: 1, b: 2 } },
        { id: "c2", name: "fail", input: {} },
        { id: "c3", name: "fly", input: {} },
      ];
      upstream.replies(calls(both), says("Three."));
      const chat = chatOf(ai, service.url + CHAT);
      await chat.sendMessage({ text: "Add" });
      assert.equal(chat.error, undefined);
      const { parts } = chat.messages[1];
      const tools = parts.filter(({ type }: Loose) => type.startsWith("tool-") || type === "dynamic-tool");
      assert.deepEqual(
        tools.map(({ toolCallId, state }: Loose) => [toolCallId, state]),
        [
          ["c1", "output-available"],
          ["c2", "output-error"],
          ["c3", "output-error"],
        ],
      );
      assert.deepEqual([tools[0].input, tools[0].output], [{ a: 1, b: 2 }, { sum: 3 }]);
      assert.equal(tools[1].errorText, "the shop is closed");
      assert.match(tools[2].errorText, /there is no tool "fly"/);
      assert.equal(parts.filter(({ type }: Loose) => type === "step-start").length, 2);
      assert.equal(parts.at(-1).text, "Three.");
    });

    test("POST /agents/:id/chat: what the client holds, tool parts and all, is taken back with the next message", async (t) => {
      const { service, upstream } = await serve(t);
      const both = [
        { id: "c1", name: "sum", input: { a: 1, b: 2 } },
        { id: "c2", name: "fail", input: {} },
      ];
      upstream.replies(calls(both), says("Three.", { reasoning: "Hm." }), says("You are welcome."));
      const chat = chatOf(ai, service.url + CHAT);
      await chat.sendMessage({ text: "Add" });
      await chat.sendMessage({ text: "Thanks" });
      assert.equal(chat.error, undefined);
      assert.equal(chat.messages.length, 4);
      assert.equal(chat.messages[3].parts.at(-1).text, "You are welcome.");
      assert.notEqual(chat.messages[3].id, chat.messages[1].id);
      const call = (id: string, name: string, args: string) => ({
        id,
        type: "function",
        function: { name, arguments: args },
      });
      assert.deepEqual(upstream.requests[2]!.body.messages.slice(1), [
        { role: "user", content: "Add" },
        {
          role: "assistant",
          content: null,
          tool_calls: [call("c1", "sum", '{"a":1,"b":2}'), call("c2", "fail", "{}")],
        },
        { role: "tool", tool_call_id: "c1", content: '{"sum":3}' },
        { role: "tool", tool_call_id: "c2", content: "the shop is closed" },
        { role: "assistant", content: "Three.", reasoning_content: "Hm." },
        { role: "user", content: "Thanks" },
      ]);
    });

    test("POST /agents/:id/chat: an answer is made anew on regenerate", async (t) => {
      const { service, upstream } = await serve(t);
      upstream.replies(says("First"), says("Second"));
      const posted: Loose[] = [];
      const chat = chatOf(ai, service.url + CHAT, posted);
      await chat.sendMessage({ text: "Hi" });
      await chat.regenerate();
      assert.equal(chat.error, undefined);
      assert.equal(posted[1].trigger, "regenerate-message");
      assert.equal(chat.messages.length, 2);
      assert.equal(chat.messages[1].parts.at(-1).text, "Second");
    });

    test("POST /agents/:id/chat: files of the user reach the model", async (t) => {
      const { service, upstream } = await serve(t);
      const url = "data:image/png;base64,iVBORw0KGgo=";
      const chat = chatOf(ai, service.url + CHAT);
      await chat.sendMessage({ text: "What is it?", files: [{ type: "file", mediaType: "image/png", url }] });
      assert.equal(chat.error, undefined);
      const { content } = upstream.requests[0]!.body.messages.at(-1);
      assert.deepEqual(content.find(({ type }: Loose) => type === "image_url").image_url, { url });
    });

    test("POST /agents/:id/chat: everything that a model can say: sources, files, reasoning and the provider's own tools", async (t) => {
      const service = await showcase(t);
      const chat = chatOf(ai, service.url + CHAT);
      await chat.sendMessage({ text: "Show" });
      assert.equal(chat.error, undefined);
      const parts = bare(chat.messages[1].parts);
      const of = (type: string) => parts.filter((part: Loose) => part.type === type);
      assert.deepEqual(of("reasoning"), [{ type: "reasoning", text: "Let me think." }]);
      assert.deepEqual(
        of("text").map(({ text }: Loose) => text),
        ["Adding.", "Three hits."],
      );
      assert.deepEqual(of("source-url"), [
        { type: "source-url", sourceId: "s1", url: "https://shop.example/lamps", title: "Lamps" },
      ]);
      const document = { sourceId: "s2", mediaType: "application/pdf", title: "Bill", filename: "bill.pdf" };
      assert.deepEqual(of("source-document"), [{ type: "source-document", ...document }]);
      assert.deepEqual(of("file"), [
        { type: "file", mediaType: "image/png", url: "data:image/png;base64,iVBORw0KGgo=" },
      ]);
      const [search] = of("tool-web_search");
      assert.deepEqual([search.input, search.output, search.providerExecuted], [{ query: "lamps" }, { hits: 3 }, true]);
      const signed = chat.messages[1].parts.filter(
        ({ providerMetadata }: Loose) => providerMetadata?.showcase.signature,
      );
      assert.deepEqual(
        signed.map(({ type }: Loose) => type),
        ["reasoning", "source-url", "text"],
        "what the provider wants back is kept for it",
      );
      await chat.sendMessage({ text: "Again" });
      assert.equal(chat.error, undefined, "the message with all these parts is taken back");
      assert.equal(chat.messages.length, 4);
    });

    test("POST /agents/:id/chat: a refusal before the stream is the client's error, with our message", async (t) => {
      const { service, upstream } = await serve(t);
      upstream.replies(failure(429));
      const chat = chatOf(ai, service.url + CHAT);
      await chat.sendMessage({ text: "Hi" });
      assert.equal(chat.status, "error");
      assert.match(chat.error!.message, /model provider failed: rate limited/);
    });

    test("POST /agents/:id/chat: a failure in mid-stream is the client's error, and it keeps what was said", async (t) => {
      const { service, upstream } = await serve(t);
      upstream.replies(cutsAfter("Half an ans"));
      const chat = chatOf(ai, service.url + CHAT);
      await chat.sendMessage({ text: "Hi" });
      assert.equal(chat.status, "error");
      assert.equal(chat.error!.message, "model provider failed: unavailable");
      assert.equal(chat.messages[1].parts.at(-1).text, "Half an ans");
    });

    test("POST /agents/:id/chat: stop closes the upstream, and the next message is answered", async (t) => {
      const { service, upstream } = await serve(t);
      upstream.replies(stallsAfter("Half"), says("Whole"));
      const chat = chatOf(ai, service.url + CHAT);
      const sending = chat.sendMessage({ text: "Hi" });
      await upstream.request(0);
      while (chat.messages.at(-1)?.parts.at(-1)?.text !== "Half")
        await new Promise((resolve) => setTimeout(resolve, 5));
      await chat.stop();
      await sending;
      await soon(upstream.requests[0]!.aborted, "the abort");
      assert.equal(chat.status, "ready");
      await chat.sendMessage({ text: "Again" });
      assert.equal(chat.error, undefined);
      assert.equal(chat.messages.at(-1).parts.at(-1).text, "Whole");
    });

    test("POST /agents/:id/chat: readUIMessageStream gives the message as it grows", async (t) => {
      const { service, upstream } = await serve(t);
      upstream.replies(says("One two three", { chunks: 3, delay: 5 }));
      const { DefaultChatTransport, readUIMessageStream } = ai as Loose;
      const transport = new DefaultChatTransport({ api: service.url + CHAT });
      const messages = [{ id: "m1", role: "user", parts: [{ type: "text", text: "Count" }] }];
      const stream = await transport.sendMessages({ chatId: "c", messages, trigger: "submit-message" });
      const texts: string[] = [];
      for await (const message of readUIMessageStream({ stream, terminateOnError: true })) {
        texts.push(message.parts.at(-1)?.text ?? "");
      }
      assert.equal(texts.at(-1), "One two three");
      assert.ok(new Set(texts).size > 2, "it grew on the way");
    });
  });
}
