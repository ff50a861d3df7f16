/** Contract, "options of the generation endpoints": the rows about memory, over HTTP, on the stores of one process. */
import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { describe, test } from "node:test";
import { EventReader, eventually } from "../support/event-reader.ts";
import { calls, failsAfter, failure, says, saysJson, stallsAfter } from "../support/openai-upstream.ts";
import { dataOf, errorOf, type Loose, type ServedUpstream, serveUpstream } from "../support/served-upstream.ts";
import { parseEvents } from "../support/service.ts";

const AGENT = "/agents/assistant";
const TEXT = `${AGENT}/text`;
const TOOLS = { tools: { add: { use: "add" } } };
const ada = (conversationId: string, options: object = {}) => ({
  memory: { userId: "ada", conversationId, options },
});

for (const store of ["memory:", "sqlite:data/test.db"]) {
  const serve = (t: Parameters<typeof serveUpstream>[0], memory: object = {}, agent: object = {}) =>
    serveUpstream(t, { memory: "default", ...agent }, { store, memory: { default: memory }, ...TOOLS });

  /** What the API says of a conversation. */
  const stored = async ({ service }: ServedUpstream, id: string): Promise<{ conversation: Loose; messages: Loose[] }> =>
    dataOf(service.get(`/api/memory/conversations/${id}/messages`));

  const texts = (messages: Loose[]) =>
    messages.map(({ role, parts, content }) => [
      role,
      Array.isArray(parts)
        ? parts.flatMap((part: Loose) => (part.type === "text" ? [part.text] : [])).join("")
        : typeof content === "string"
          ? content
          : content.map((part: Loose) => part.text).join(""),
    ]);

  /** What the model was told with the last request, without the instructions. */
  const told = ({ upstream }: ServedUpstream) =>
    texts(upstream.requests.at(-1)!.body.messages.filter(({ role }: Loose) => role !== "system"));

  describe(`POST /agents/:id/text and the other endpoints that generate, with memory on ${store}`, () => {
    test("POST /agents/:id/text stores the turn in a new conversation with a title, and tells it to the next", async (t) => {
      const served = await serve(t);
      const { service, upstream } = served;
      const long = `My name is Ada and ${"I like engines ".repeat(10)}`;
      upstream.replies(says("Hello Ada"), says("Ada, of course"));
      await dataOf(service.post(TEXT, { input: long, options: ada("c1") }));
      await dataOf(service.post(TEXT, { input: "Who am I?", options: ada("c1") }));
      assert.deepEqual(told(served), [
        ["user", long],
        ["assistant", "Hello Ada"],
        ["user", "Who am I?"],
      ]);
      const { conversation, messages } = await stored(served, "c1");
      assert.equal(conversation.userId, "ada");
      assert.equal(conversation.resourceId, "assistant");
      assert.ok(conversation.title.length <= 80 && long.startsWith(conversation.title), conversation.title);
      assert.deepEqual(texts(messages), [
        ["user", long],
        ["assistant", "Hello Ada"],
        ["user", "Who am I?"],
        ["assistant", "Ada, of course"],
      ]);
      assert.equal(new Set(messages.map(({ id }) => id)).size, 4);
    });

    test("every endpoint that generates stores and recalls, the deprecated options too", async (t) => {
      const served = await serve(t);
      const { service, upstream } = served;
      const schema = { type: "object", properties: { n: { type: "number" } }, required: ["n"] };
      const options = { userId: "ada", conversationId: "c" };
      await dataOf(service.post(TEXT, { input: "one", options }));
      assert.match(await (await service.post(`${AGENT}/stream`, { input: "two", options })).text(), /"finish"/);
      assert.match(await (await service.post(`${AGENT}/chat`, { input: "three", options })).text(), /"finish"/);
      upstream.replies(saysJson({ n: 4 }), saysJson({ n: 5 }));
      await dataOf(service.post(`${AGENT}/object`, { input: "four", schema, options }));
      assert.match(
        await (await service.post(`${AGENT}/stream-object`, { input: "five", schema, options })).text(),
        /final/,
      );
      const said = ["one", "one", "two", "two", "three", "three", "four", '{"n":4}', "five", '{"n":5}'];
      assert.deepEqual(
        texts((await stored(served, "c")).messages).map(([, text]) => text),
        said,
      );
      assert.deepEqual(
        told(served).map(([, text]) => text),
        said.slice(0, 9),
      );
    });

    test("options.memory.options.contextLimit counts messages and begins with a question, and 0 tells none; the memory's own is the default", async (t) => {
      const served = await serve(t, { contextLimit: 2 });
      const { service } = served;
      for (const input of ["one", "two", "three"]) await dataOf(service.post(TEXT, { input, options: ada("c") }));
      assert.deepEqual(
        told(served).map(([, text]) => text),
        ["two", "two", "three"],
      );
      await dataOf(service.post(TEXT, { input: "four", options: ada("c", { contextLimit: 3 }) }));
      assert.deepEqual(
        told(served).map(([, text]) => text),
        ["three", "three", "four"],
      );
      await dataOf(service.post(TEXT, { input: "five", options: ada("c", { contextLimit: 0 }) }));
      assert.deepEqual(told(served), [["user", "five"]]);
      assert.equal((await stored(served, "c")).messages.length, 10);
    });

    test("options.memory.options.readOnly tells what was said and writes nothing", async (t) => {
      const served = await serve(t, { workingMemory: { scope: "conversation", template: "# Profile" } });
      const { service, upstream } = served;
      await dataOf(service.post(TEXT, { input: "one", options: ada("c") }));
      await dataOf(service.post(TEXT, { input: "two", options: ada("c", { readOnly: true }) }));
      assert.deepEqual(
        told(served).map(([, text]) => text),
        ["one", "one", "two"],
      );
      assert.equal(upstream.requests.at(-1)!.body.tools, undefined);
      assert.match(JSON.stringify(upstream.requests.at(-1)!.body.messages[0]), /# Profile/);
      assert.equal((await stored(served, "c")).messages.length, 2);
      await dataOf(service.post(TEXT, { input: "x", options: ada("new", { readOnly: true }) }));
      assert.equal((await errorOf(service.get("/api/memory/conversations/new"))).status, 404);
    });

    test("a conversation without a user belongs to anonymous, and a user without a conversation stores nothing", async (t) => {
      const served = await serve(t);
      const { service } = served;
      await dataOf(service.post(TEXT, { input: "one", options: { conversationId: "c" } }));
      assert.equal((await stored(served, "c")).conversation.userId, "anonymous");
      await dataOf(service.post(TEXT, { input: "two", options: { userId: "ada" } }));
      const { total } = await dataOf(service.get("/api/memory/conversations?userId=ada"));
      assert.equal(total, 0);
    });

    for (const path of ["text", "stream", "chat"]) {
      test(`POST /agents/:id/${path} with a conversation of somebody else is 404, and the model is not asked`, async (t) => {
        const served = await serve(t);
        const { service, upstream } = served;
        await dataOf(service.post(TEXT, { input: "secret", options: ada("c") }));
        const options = { memory: { userId: "eve", conversationId: "c", options: { contextLimit: 0 } } };
        const answer = await errorOf(service.post(`${AGENT}/${path}`, { input: "tell me", options }));
        assert.equal(answer.status, 404);
        assert.equal(upstream.requests.length, 1);
        assert.equal((await stored(served, "c")).messages.length, 2);
      });
    }

    test("a turn with tools and reasoning is two messages, and is told to the model whole", async (t) => {
      const served = await serve(t, {}, { tools: ["add"] });
      const { service, upstream } = served;
      upstream.replies(
        calls([{ name: "add", input: { a: 1, b: 2 }, id: "call-1" }]),
        says("It is 3", { reasoning: "That was easy" }),
        says("As I said, 3"),
      );
      await dataOf(service.post(TEXT, { input: "1 + 2?", options: ada("c") }));
      const { messages } = await stored(served, "c");
      assert.deepEqual(
        messages.map(({ role }) => role),
        ["user", "assistant"],
      );
      assert.deepEqual(messages[1].parts, [
        { type: "step-start" },
        {
          type: "tool-add",
          toolCallId: "call-1",
          state: "output-available",
          input: { a: 1, b: 2 },
          output: { sum: 3 },
        },
        { type: "step-start" },
        { type: "reasoning", text: "That was easy", state: "done" },
        { type: "text", text: "It is 3", state: "done" },
      ]);
      await dataOf(service.post(TEXT, { input: "Again?", options: ada("c") }));
      const sent = upstream.requests.at(-1)!.body.messages.filter(({ role }: Loose) => role !== "system");
      assert.deepEqual(
        sent.map(({ role }: Loose) => role),
        ["user", "assistant", "tool", "assistant", "user"],
      );
      assert.equal(sent[1].tool_calls[0].id, "call-1");
      assert.equal(sent[2].tool_call_id, "call-1");
    });

    test("files that the user sent are stored and told again", async (t) => {
      const served = await serve(t);
      const { service, upstream } = served;
      const url = "data:image/png;base64,iVBORw0KGgo=";
      const parts = [
        { type: "text", text: "What is it?" },
        { type: "file", mediaType: "image/png", url },
      ];
      await dataOf(service.post(TEXT, { input: [{ role: "user", parts }], options: ada("ui") }));
      const content = [
        { type: "text", text: "And this?" },
        { type: "image", image: "iVBORw0KGgo=", mediaType: "image/png" },
      ];
      await dataOf(service.post(TEXT, { input: [{ role: "user", content }], options: ada("ui") }));
      const { messages } = await stored(served, "ui");
      assert.deepEqual(messages[0].parts, parts);
      assert.deepEqual(messages[2].parts, [
        { type: "text", text: "And this?" },
        { type: "file", mediaType: "image/png", url },
      ]);
      await dataOf(service.post(TEXT, { input: "Well?", options: ada("ui") }));
      assert.equal(JSON.stringify(upstream.requests.at(-1)!.body).split("iVBORw0KGgo=").length, 3);
    });

    test("POST /agents/:id/chat with a hook's whole chat stores each message once, under the ids that the hook has", async (t) => {
      const served = await serve(t);
      const { service } = served;
      const chat: Loose[] = [];
      const send = async (body: object) => {
        const reply = await service.post(`${AGENT}/chat`, { id: "c", messages: chat, ...body });
        const events = parseEvents(await reply.text()).map(({ data }) => (data === "[DONE]" ? {} : JSON.parse(data)));
        return events.find(({ type }) => type === "start").messageId as string;
      };
      chat.push({ id: "u1", role: "user", parts: [{ type: "text", text: "one" }] });
      const first = await send({ trigger: "submit-message" });
      chat.push({ id: first, role: "assistant", parts: [{ type: "text", text: "one" }] });
      chat.push({ id: "u2", role: "user", parts: [{ type: "text", text: "two" }] });
      const second = await send({ trigger: "submit-message" });
      assert.deepEqual(
        told(served).map(([, text]) => text),
        ["one", "one", "two"],
      );
      const ids = async () => (await stored(served, "c")).messages.map(({ id }) => id);
      assert.deepEqual(await ids(), ["u1", first, "u2", second]);
      const third = await send({ trigger: "regenerate-message", messageId: second });
      assert.deepEqual(
        told(served).map(([, text]) => text),
        ["one", "one", "two"],
      );
      assert.deepEqual(await ids(), ["u1", first, "u2", third]);
    });

    test("a run whose model fails leaves what was said, and the next prompt is valid", async (t) => {
      const served = await serve(t, {}, { tools: ["add"] });
      const { service, upstream } = served;
      upstream.replies(failure(400), failsAfter("Half an ans"));
      assert.equal((await service.post(TEXT, { input: "one", options: ada("c") })).status, 500);
      assert.equal((await service.post(TEXT, { input: "two", options: ada("c") })).status, 500);
      const { messages } = await stored(served, "c");
      assert.deepEqual(texts(messages), [
        ["user", "two"],
        ["assistant", "Half an ans"],
      ]);
      await dataOf(service.post(TEXT, { input: "three", options: ada("c") }));
      assert.equal(told(served).length, 3);
    });

    test("a run whose client leaves in the middle of a tool call leaves the call with an error", async (t) => {
      const held = createServer(() => undefined);
      await new Promise<void>((resolve) => held.listen(0, "127.0.0.1", resolve));
      t.after(() => {
        held.closeAllConnections();
        held.close();
      });
      const { port } = held.address() as AddressInfo;
      const slow = { description: "Never answers", http: { url: `http://127.0.0.1:${port}/` } };
      const served = await serveUpstream(
        t,
        { memory: "default", tools: ["slow"] },
        { store, memory: { default: {} }, tools: { slow } },
      );
      const { service, upstream } = served;
      upstream.replies(calls([{ name: "slow", id: "call-1" }]));
      const reader = new EventReader(`${service.url}${AGENT}/stream`, { input: "one", options: ada("c") });
      await reader.until(() => reader.text.includes('"tool-call"'));
      reader.leave();
      const reply = () => service.get("/api/memory/conversations/c/messages");
      await eventually(async () => (await reply()).status === 200, "the turn is stored");
      const [, answer] = (await stored(served, "c")).messages;
      assert.deepEqual(answer.metadata, { status: "cancelled" });
      assert.deepEqual(answer.parts.slice(1), [
        {
          type: "tool-slow",
          toolCallId: "call-1",
          state: "output-error",
          input: {},
          errorText: "The call was not completed.",
        },
      ]);
      await dataOf(service.post(TEXT, { input: "two", options: ada("c") }));
      const roles = upstream.requests.at(-1)!.body.messages.map(({ role }: Loose) => role);
      assert.deepEqual(roles, ["system", "user", "assistant", "tool", "user"]);
    });

    test("a run whose client leaves in the middle of a text leaves what was said", async (t) => {
      const served = await serve(t);
      const { service, upstream } = served;
      upstream.replies(stallsAfter("Let me th"));
      const reader = new EventReader(`${service.url}${AGENT}/stream`, { input: "one", options: ada("c") });
      await reader.until(() => reader.text.includes("Let me th"));
      reader.leave();
      const reply = () => service.get("/api/memory/conversations/c/messages");
      await eventually(async () => (await reply()).status === 200, "the turn is stored");
      assert.deepEqual(texts((await stored(served, "c")).messages), [
        ["user", "one"],
        ["assistant", "Let me th"],
      ]);
    });

    test("conversationPersistence step stores while the run goes on, finish at its end alone", async (t) => {
      const served = await serve(t, {}, { tools: ["add"] });
      const { service, upstream } = served;
      const both = calls([{ name: "add", input: { a: 1, b: 2 }, id: "call-1" }]);
      const found = async (id: string) =>
        (await service.get(`/api/memory/conversations/${id}/messages`)).status === 200;
      for (const [id, persistence] of [
        ["flushed", { debounceMs: 60_000 }],
        ["debounced", { debounceMs: 10, flushOnToolResult: false }],
      ] as const) {
        upstream.replies(both, stallsAfter("Hm"));
        const options = ada(id, { conversationPersistence: persistence });
        const reader = new EventReader(`${service.url}${AGENT}/stream`, { input: "1 + 2?", options });
        await reader.until(() => reader.text.includes("Hm"));
        await eventually(() => found(id), `${id} is stored`);
        const { messages } = await stored(served, id);
        assert.equal(messages.length, 2);
        assert.equal(messages[1].parts.find(({ type }: Loose) => type === "tool-add").state, "output-available");
        reader.leave();
        await eventually(
          async () => JSON.stringify((await stored(served, id)).messages[1]).includes('"Hm"'),
          `${id} is whole`,
        );
        assert.equal((await stored(served, id)).messages.length, 2);
      }
      upstream.replies(both, stallsAfter("Hm"));
      const options = ada("finish", { conversationPersistence: { mode: "finish" } });
      const reader = new EventReader(`${service.url}${AGENT}/stream`, { input: "1 + 2?", options });
      await reader.until(() => reader.text.includes("Hm"));
      assert.equal(await found("finish"), false);
      reader.leave();
      await eventually(() => found("finish"), "finish is stored");
    });

    test("calls in one conversation at once lose no message, and make one conversation", async (t) => {
      const served = await serve(t);
      const { service } = served;
      // As many as wait for the turns before them, and the one at work.
      const inputs = Array.from({ length: 17 }, (_, index) => `message ${index}`);
      await Promise.all(inputs.map((input) => dataOf(service.post(TEXT, { input, options: ada("c") }))));
      const { messages } = await stored(served, "c");
      for (const role of ["user", "assistant"]) {
        const said = texts(messages.filter((message) => message.role === role)).map(([, text]) => text);
        assert.deepEqual(said.sort(), [...inputs].sort());
      }
      assert.equal((await dataOf(service.get("/api/memory/conversations?userId=ada"))).total, 1);
    });

    test("working memory is told to the model, which writes it with update_working_memory", async (t) => {
      const served = await serve(t, { workingMemory: { scope: "user", template: "# Profile\n- Name:" } });
      const { service, upstream } = served;
      const note = (content: string, mode?: string) =>
        calls([{ name: "update_working_memory", input: { content, mode } }]);
      upstream.replies(note("- Name: Ada"), says("Noted"), note("- Likes engines", "append"), says("Noted too"));
      await dataOf(service.post(TEXT, { input: "I am Ada", options: ada("c1") }));
      const [first] = upstream.requests;
      assert.match(first!.body.messages[0].content, /# Profile\n- Name:/);
      assert.deepEqual(
        first!.body.tools.map((tool: Loose) => tool.function.name),
        ["update_working_memory"],
      );
      await dataOf(service.post(TEXT, { input: "I like engines", options: ada("c2") }));
      assert.match(upstream.requests[2]!.body.messages[0].content, /- Name: Ada/);
      const { content } = await dataOf(
        service.get("/api/memory/conversations/c1/working-memory?scope=user&userId=ada"),
      );
      assert.equal(content, "- Name: Ada\n\n- Likes engines");
    });

    test("working memory with a schema refuses what does not fit, and tells the model so", async (t) => {
      const schema = { type: "object", properties: { name: { type: "string" } }, additionalProperties: false };
      const served = await serve(t, { workingMemory: { scope: "conversation", schema } });
      const { service, upstream } = served;
      const note = (content: object) => calls([{ name: "update_working_memory", input: { content } }]);
      upstream.replies(note({ age: 7 }), note({ name: "Ada" }), says("Noted"));
      const { toolResults } = await dataOf(service.post(TEXT, { input: "I am Ada", options: ada("c") }));
      assert.equal(toolResults.length, 1);
      const { content, format } = await dataOf(service.get("/api/memory/conversations/c/working-memory"));
      assert.equal(format, "json");
      assert.deepEqual(JSON.parse(content), { name: "Ada" });
    });

    test("update_working_memory joins lists of 20,000 items at once, and tells the model of content that is too deep", async (t) => {
      const served = await serve(t, { workingMemory: { scope: "conversation", format: "json" } });
      const { service, upstream } = served;
      const note = (content: unknown) => calls([{ name: "update_working_memory", input: { content, mode: "append" } }]);
      const list = (from: number) => ({ list: Array.from({ length: 20_000 }, (_, index) => [from + index]) });
      const deep = `{"list":${"[".repeat(50_000)}${"]".repeat(50_000)}}`;
      upstream.replies(note(list(0)), note(list(10_000)), note(deep), says("Noted"));
      await dataOf(service.post(TEXT, { input: "Count", options: ada("c") }));
      assert.match(JSON.stringify(upstream.requests[3]!.body.messages.at(-1)), /nested deeper than/);
      const { content } = await dataOf(service.get("/api/memory/conversations/c/working-memory"));
      assert.equal(JSON.parse(content).list.length, 30_000);
    });

    test("options.memory.options.semanticMemory tells similar messages from before the window, merged as asked for", async (t) => {
      const semantic = { embedding: "local/hash", vectors: "exact", limit: 1, threshold: 0.5 };
      const served = await serve(t, { contextLimit: 2, semantic });
      const { service, upstream } = served;
      const say = (input: string, answer: string, options: object = {}) => {
        upstream.replies(says(answer));
        return dataOf(service.post(TEXT, { input, options: ada("c", options) }));
      };
      await say("The capital of Portugal is Lisbon", "Good");
      await say("I had soup for lunch", "Tasty");
      await say("It rains today", "Bring an umbrella");
      const found = "/api/memory/search?searchQuery=capital%20of%20Portugal&userId=ada&threshold=0.4";
      await eventually(async () => (await dataOf(service.get(found))).count > 0, "the messages are indexed");
      const question = "What is the capital of Portugal, Lisbon?";
      const askedWith = async (options: object) => {
        await say(question, "Lisbon", { readOnly: true, ...options });
        return told(served).map(([, text]) => text);
      };
      const [similar, rain, umbrella] = ["The capital of Portugal is Lisbon", "It rains today", "Bring an umbrella"];
      assert.deepEqual(await askedWith({}), [rain, umbrella, similar, question]);
      const merged = (mergeStrategy: string) => askedWith({ semanticMemory: { mergeStrategy } });
      assert.deepEqual(await merged("prepend"), [similar, rain, umbrella, question]);
      assert.deepEqual(await merged("interleave"), [similar, rain, umbrella, question]);
      assert.deepEqual(await askedWith({ semanticMemory: { enabled: false } }), [rain, umbrella, question]);
      assert.deepEqual(await askedWith({ semanticMemory: { semanticThreshold: 0.99 } }), [rain, umbrella, question]);
      assert.deepEqual(await askedWith({ contextLimit: 0 }), [similar, question]);
      // Nothing is told twice.
      assert.deepEqual((await askedWith({ contextLimit: 10 })).filter((text) => text === similar).length, 1);
    });

    test("GET /agents and GET /agents/:id show the memory's settings, and null without one", async (t) => {
      const { service } = await serveUpstream(
        t,
        { memory: "notes" },
        {
          store,
          memory: { notes: { contextLimit: 7, workingMemory: { scope: "user", template: "# Me" } } },
          agents: { other: { name: "Other", model: "up/test-model", memory: false } },
        },
      );
      const config = {
        name: "notes",
        contextLimit: 7,
        workingMemory: { scope: "user", format: "markdown", template: "# Me" },
      };
      assert.deepEqual((await dataOf(service.get("/agents/assistant"))).memory, { config });
      const [assistant, other] = await dataOf(service.get("/agents"));
      assert.deepEqual(assistant.memory, { config });
      assert.equal(other.memory, null);
    });
  });
}
