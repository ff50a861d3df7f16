/** What the first request of a conversation has before its turn: a greeting, or a history from elsewhere. It is stored once, on every store. */
import assert from "node:assert/strict";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { STORES } from "../support/memory-stores.ts";
import { calls, failure, says, startOpenAIUpstream } from "../support/openai-upstream.ts";
import { dataOf, type Loose, serveUpstream } from "../support/served-upstream.ts";
import { manifestWith, startService } from "../support/service.ts";
import { temporaryFolder } from "../support/storage.ts";

const AGENT = "/agents/assistant";
const ui = (id: string, role: string, text: string) => ({ id, role, parts: [{ type: "text", text }] });
const GREETING = ui("g1", "assistant", "How can I help?");
const textOf = ({ parts, content }: Loose): string =>
  typeof content === "string" ? content : (parts ?? content).flatMap((part: Loose) => part.text ?? []).join("");
const options = (conversationId: string, rest: object = {}) => ({
  memory: { userId: "ada", conversationId, options: rest },
});

for (const store of STORES) {
  const serve = async (t: TestContext, memory: object = {}) => {
    const setting = { store: await store.url(t), memory: { default: memory }, tools: { add: { use: "add" } } };
    const { service, upstream } = await serveUpstream(t, { memory: "default", tools: ["add"] }, setting);
    const stored = async (id: string): Promise<Loose[]> =>
      (await dataOf(service.get(`/api/memory/conversations/${id}/messages`))).messages;
    return {
      service,
      upstream,
      stored,
      lines: async (id: string) => (await stored(id)).map((message) => `${message.role}: ${textOf(message)}`),
      told: (): Loose[] =>
        upstream.requests
          .at(-1)!
          .body.messages.filter(({ role }: Loose) => role !== "system")
          .map(({ content }: Loose) => content),
      say: (input: unknown, settings: object) => dataOf(service.post(`${AGENT}/text`, { input, options: settings })),
    };
  };

  test(`POST /agents/:id/text, /chat and /ag-ui store what the first request of a conversation has before its turn, and later ones do not (${store.name})`, async (t) => {
    const { service, upstream, stored, lines, told, say } = await serve(t);
    upstream.fallback(says("Well."));
    const chat = async (messages: object[]) =>
      (await service.post(`${AGENT}/chat`, { id: "chat", messages, options: { userId: "ada" } })).text();
    const u1 = ui("u1", "user", "Hello");
    await chat([GREETING, u1]);
    assert.deepEqual(await lines("chat"), ["assistant: How can I help?", "user: Hello", "assistant: Well."]);
    assert.deepEqual(
      (await stored("chat")).slice(0, 2).map(({ id }) => id),
      ["g1", "u1"],
    );
    const [, , a1] = await stored("chat");
    await chat([GREETING, u1, a1, ui("u2", "user", "And?")]);
    assert.equal((await stored("chat")).length, 5);
    await chat([GREETING, ui("u1", "user", "Hello again")]);
    assert.deepEqual(await lines("chat"), ["assistant: How can I help?", "user: Hello again", "assistant: Well."]);
    await say("More", options("chat"));
    assert.deepEqual(told(), ["(The assistant begins.)", "How can I help?", "Hello again", "Well.", "More"]);

    const history = [
      { role: "system", content: "Be brief." },
      { role: "user", content: "Add 1 and 2" },
      { role: "assistant", content: [{ type: "tool-call", toolCallId: "c1", toolName: "add", input: { a: 1, b: 2 } }] },
      { role: "tool", content: [{ type: "tool-result", toolCallId: "c1", toolName: "add", output: { sum: 3 } }] },
      { role: "assistant", content: "Three." },
    ];
    upstream.replies(calls([{ name: "add", input: { a: 1, b: 2 } }]), says("Sure."));
    await say([...history, { role: "user", content: "Sure?" }], options("model", { contextLimit: 1 }));
    const imported = [
      ...["user: Add 1 and 2", "assistant: ", "tool: ", "assistant: Three."],
      ...["user: Sure?", "assistant: Sure."],
    ];
    assert.deepEqual(await lines("model"), imported);
    const times = (await stored("model")).map(({ createdAt }) => createdAt);
    assert.deepEqual(times, [...new Set(times)].sort());
    await say("Good", options("model"));
    assert.deepEqual(told(), ["Add 1 and 2", null, '{"sum":3}', "Three.", "Sure?", null, '{"sum":3}', "Sure.", "Good"]);
    await say([...history, { role: "user", content: "Sure?" }], options("model"));
    assert.equal((await stored("model")).length, 10, "the conversation exists");

    const body = { threadId: "ag-ui", runId: "r1", tools: [], context: [{ description: "Place", value: "Lisbon" }] };
    const messages = [
      { id: "g1", role: "assistant", content: "How can I help?" },
      { id: "u1", role: "user", content: "Hello" },
    ];
    await (await service.post(`${AGENT}/ag-ui`, { ...body, messages })).text();
    assert.deepEqual(await lines("ag-ui"), ["assistant: How can I help?", "user: Hello", "assistant: Well."]);

    await say([GREETING, u1], options("unread", { readOnly: true }));
    assert.equal((await service.get("/api/memory/conversations/unread")).status, 404);
    await service.post("/api/memory/conversations", { conversationId: "made", userId: "ada" });
    await say([GREETING, u1], options("made"));
    assert.deepEqual(await lines("made"), ["user: Hello", "assistant: Well."]);
  });

  test(`POST /agents/:id/text stores the greeting with the turn that succeeds, and once with a working memory that is written first (${store.name})`, async (t) => {
    const { service, upstream, lines, say } = await serve(t, { workingMemory: { schema: { type: "object" } } });
    upstream.replies(failure(400));
    const input = [GREETING, ui("u1", "user", "Hello")];
    await assert.rejects(say(input, options("failed")));
    assert.equal((await service.get("/api/memory/conversations/failed")).status, 404);
    upstream.fallback(says("Well."));
    await say(input, options("failed"));
    const turn = ["assistant: How can I help?", "user: Hello", "assistant: Well."];
    assert.deepEqual(await lines("failed"), turn);

    const messages = [
      { id: "g1", role: "assistant", content: "How can I help?" },
      { id: "u1", role: "user", content: "Hello" },
    ];
    const body = { threadId: "edited", runId: "r1", tools: [], context: [], state: { name: "Ada" }, messages };
    await (await service.post(`${AGENT}/ag-ui`, body)).text();
    assert.deepEqual(await lines("edited"), turn);
  });
}

test("POST /agents/:id/text of a durable agent: a greeting without an id is stored once, when a crash comes after a checkpoint", async (t) => {
  const folder = await temporaryFolder(t);
  const upstream = await startOpenAIUpstream();
  t.after(() => upstream.close());
  const manifest = manifestWith(
    { model: "up/test-model", memory: "default", tools: ["add"], durable: true },
    {
      store: `sqlite:${join(folder, "test.db")}`,
      memory: { default: {} },
      tools: { add: { use: "add" } },
      providers: { up: { use: "openai-compatible", baseURL: upstream.baseURL, apiKey: "test", retries: 0 } },
    },
  );
  const service = await startService(t, manifest);
  upstream.replies(calls([{ name: "add", input: { a: 1, b: 2 } }]), { headDelay: Number.POSITIVE_INFINITY });
  const input = [
    { role: "assistant", content: "How can I help?" },
    { role: "user", content: "Add" },
  ];
  const memory = { userId: "ada", conversationId: "c", options: { conversationPersistence: { debounceMs: 0 } } };
  service.post(`${AGENT}/text`, { input, options: { memory, runId: "0".repeat(32) } }).catch(() => {});
  await upstream.request(1);
  await service.kill();
  upstream.fallback(says("Three."));
  const again = await startService(t, manifest);
  await (await again.get(`${AGENT}/runs/${"0".repeat(32)}/stream?userId=ada`)).text();
  const { messages } = await dataOf(again.get("/api/memory/conversations/c/messages"));
  assert.deepEqual(
    messages.map((message: Loose) => `${message.role}: ${textOf(message)}`),
    ["assistant: How can I help?", "user: Add", "assistant: Three."],
  );
});
