/** The real `ai` clients come back to an answer that goes on without them: the newest 5, 6.0.0, the newest 6 and 7, as `useChat` with `resume: true`. */
import assert from "node:assert/strict";
import { join } from "node:path";
import { describe, type TestContext, test } from "node:test";
import { eventually } from "../support/event-reader.ts";
import { type HeldModel, heldModel } from "../support/held-model.ts";
import type { Loose } from "../support/served-upstream.ts";
import { startService, type TestService } from "../support/service.ts";
import { temporaryFolder } from "../support/storage.ts";
import { CLIENTS, chatOf, load } from "./chat.ts";

const TOKEN = "token-of-ada-0123456789";
const API = "/agents/teller/chat";
const QUESTION = "And then?";

/** Starts services one after the other on one SQLite file. */
async function restarts(t: TestContext) {
  const model = heldModel(t);
  const store = `sqlite:${join(await temporaryFolder(t), "test.db")}`;
  let running: TestService | null = null;
  const start = async () => {
    await running?.kill();
    const manifest = {
      name: "Test",
      version: "1.0.0",
      store,
      auth: { mode: "authNext", provider: { use: "static", tokens: { [TOKEN]: { id: "ada" } } } },
      providers: { held: model.settings },
      memory: { default: {} },
      agents: { teller: { model: "held/any" } },
    };
    running = await startService(t, manifest, { plugins: [model.plugins] });
    return running;
  };
  return { start, model };
}

/** What a page makes of the conversation `c`. */
function pageOf(ai: Loose, service: TestService, messages: Loose[] = []) {
  const transport = new ai.DefaultChatTransport({
    api: service.url + API,
    headers: { authorization: `Bearer ${TOKEN}` },
    body: { options: { resumableStream: true } },
  });
  const chat = chatOf(ai, "", [], { id: "c", transport });
  for (const message of messages) chat.messages.push(structuredClone(message));
  return chat;
}

const textOf = (chat: { messages: Loose[] }) =>
  (chat.messages.at(-1)?.parts ?? []).map(({ text }: Loose) => text ?? "").join("");

/** A page that asks and is closed in the middle of the answer. @returns what it shows then */
async function closedPage(ai: Loose, service: TestService, model: HeldModel): Promise<Loose[]> {
  model.hold(QUESTION);
  const page = pageOf(ai, service);
  const asked = page.sendMessage({ text: QUESTION });
  await eventually(() => textOf(page) === "half 1 ", "half of the answer");
  await page.stop();
  await asked;
  return structuredClone(page.messages);
}

for (const name of CLIENTS) {
  describe(`the client ${name}`, async () => {
    const ai = await load(name);
    /** This one adds what it is sent to a half answer that it shows, so that its page is loaded with what is stored. */
    const loadedWith = (shown: Loose[]) => (name === "ai-6.0.0" ? shown.slice(0, 1) : shown);

    test("GET /agents/:id/chat/:conversationId/stream: a page that is loaded again goes on with the answer, in one message, and so does a second tab", async (t) => {
      const { start, model } = await restarts(t);
      const service = await start();
      const shown = await closedPage(ai, service, model);
      // One is loaded with what was shown, the other with what is stored: the question alone.
      const tabs = [pageOf(ai, service, loadedWith(shown)), pageOf(ai, service, shown.slice(0, 1))];
      const ended = tabs.map((tab) => tab.resumeStream());
      for (const tab of tabs) await eventually(() => textOf(tab) === "half 1 ", "what was said before");
      model.release(QUESTION);
      await Promise.all(ended);
      for (const tab of tabs) {
        assert.equal(tab.error, undefined);
        assert.equal(tab.status, "ready");
        assert.deepEqual(
          tab.messages.map(({ id, role }: Loose) => ({ id, role })),
          shown.map(({ id, role }: Loose) => ({ id, role })),
          "the message that was begun",
        );
        assert.equal(textOf(tab), "half 1 rest 1");
      }
    });

    test("GET /agents/:id/chat/:conversationId/stream: where nothing runs a page that is loaded stays as it is", async (t) => {
      const { start } = await restarts(t);
      const tab = pageOf(ai, await start(), [{ id: "1", role: "user", parts: [{ type: "text", text: "x" }] }]);
      await tab.resumeStream();
      assert.equal(tab.error, undefined);
      assert.equal(tab.status, "ready");
      assert.equal(tab.messages.length, 1);
    });

    test("GET /agents/:id/chat/:conversationId/stream of the next process: the message is continued, the answer that was cut off in a step of its own", async (t) => {
      const { start, model } = await restarts(t);
      const shown = await closedPage(ai, await start(), model);
      const service = await start();
      await model.isAsked(QUESTION, 2);
      const tab = pageOf(ai, service, loadedWith(shown));
      const ended = tab.resumeStream();
      await eventually(() => textOf(tab).endsWith("half 2 "), "the new begin");
      model.release(QUESTION);
      await ended;
      assert.equal(tab.error, undefined);
      assert.equal(tab.messages.length, 2);
      assert.equal(tab.messages[1].id, shown[1].id);
      assert.deepEqual(
        tab.messages[1].parts.map(({ type, text }: Loose) => text ?? type),
        ["step-start", "half 1 ", "step-start", "half 2 rest 2"],
      );
      const reply = await service.get("/api/memory/conversations/c/messages", { authorization: `Bearer ${TOKEN}` });
      const { messages } = ((await reply.json()) as Loose).data;
      assert.doesNotMatch(JSON.stringify(messages), /half 1/, "what is stored does not have it");
    });
  });
}

test("GET /agents/:id/chat/:conversationId/stream: useChat with resume: true as the SDK writes it shows no error where no user is known and nothing runs", async (t) => {
  const model = heldModel(t);
  const manifest = {
    name: "Test",
    version: "1.0.0",
    store: "memory:",
    providers: { held: model.settings },
    agents: { teller: { model: "held/any" } },
  };
  const service = await startService(t, manifest, { plugins: [model.plugins] });
  for (const client of CLIENTS) {
    const ai = await load(client);
    const chat = chatOf(ai, "", [], { transport: new ai.DefaultChatTransport({ api: service.url + API }) });
    await chat.resumeStream();
    assert.deepEqual([chat.status, chat.error?.message, chat.messages], ["ready", undefined, []], client);
  }
});
