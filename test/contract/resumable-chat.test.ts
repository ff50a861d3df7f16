/** Chats whose run goes on when the client leaves: how it is read again, followed and cancelled, by whom, and when there is nothing. */
import assert from "node:assert/strict";
import { join } from "node:path";
import { describe, type TestContext, test } from "node:test";
import { EventReader, eventually } from "../support/event-reader.ts";
import { type HeldModel, heldModel } from "../support/held-model.ts";
import { dataOf, type Loose } from "../support/served-upstream.ts";
import { startService, type TestService } from "../support/service.ts";
import { temporaryFolder } from "../support/storage.ts";

const CHAT = "/agents/teller/chat";
const STREAM = `${CHAT}/c/stream?userId=u`;
const QUESTION = "And then?";

const options = (more: object = {}) => ({ resumableStream: true, userId: "u", conversationId: "c", ...more });
const ask = (service: TestService, input = QUESTION, more: object = {}) =>
  new EventReader(service.url + CHAT, { input, options: options(more) });

async function serve(t: TestContext, engine: "memory" | "sqlite", more: object = {}) {
  const model = heldModel(t);
  const store = engine === "memory" ? "memory:" : `sqlite:${join(await temporaryFolder(t), "test.db")}`;
  const manifest = {
    name: "Test",
    version: "1.0.0",
    store,
    providers: { held: model.settings },
    memory: { default: {} },
    agents: {
      teller: { model: "held/any" },
      other: { model: "held/any" },
      forgetful: { model: "held/any", memory: false },
    },
    ...more,
  };
  const service = await startService(t, manifest, { plugins: [model.plugins] });
  return { service, model };
}

/** A chat whose client has left in the middle of the answer. */
async function leftInTheMiddle({ service, model }: { service: TestService; model: HeldModel }, input = QUESTION) {
  model.hold(input);
  const client = ask(service, input);
  await client.until(() => client.text.includes("half"));
  client.leave();
  return client;
}

const textOf = (events: Loose[]) => events.map(({ delta }) => delta ?? "").join("");
const rowsOf = ({ service }: TestService) => service.store.scan({ prefix: "xr/", limit: 9 });

for (const engine of ["memory", "sqlite"] as const) {
  describe(`on a store ${engine}:`, () => {
    test("GET /agents/:id/chat/:conversationId/stream gives a client that left the answer from its begin, and what comes; two tabs get the same", async (t) => {
      const { service, model } = await serve(t, engine);
      const before = await leftInTheMiddle({ service, model });
      const tabs = [new EventReader(service.url + STREAM), new EventReader(service.url + STREAM)];
      for (const tab of tabs) await tab.until(() => tab.text.includes("half 1"));
      model.release(QUESTION);
      for (const tab of tabs) await tab.end();
      const [one, two] = tabs as [EventReader, EventReader];
      assert.equal(one.headers["x-vercel-ai-ui-message-stream"], "v1");
      assert.deepEqual(one.sent, two.sent);
      assert.ok(one.text.endsWith("data: [DONE]\n\n"));
      assert.deepEqual(before.events, one.events.slice(0, before.events.length), "as the first client saw it");
      assert.equal(textOf(one.events), "half 1 rest 1");
      assert.deepEqual(
        one.events.map(({ type }) => type),
        ["start", "start-step", "text-start", "text-delta", "text-delta", "text-end", "finish-step", "finish"],
      );
      const { messages } = await dataOf(service.get("/api/memory/conversations/c/messages?userId=u"));
      assert.equal(messages.at(-1).id, one.events[0]!.messageId, "the message that is stored");
      const over = await service.get(STREAM);
      assert.equal(over.status, 204);
      assert.equal(await over.text(), "");
      assert.deepEqual(await rowsOf(service), []);
    });

    test("POST /agents/:id/chat/:conversationId/cancel ends the run and keeps what it has said; 404 when nothing runs", async (t) => {
      const { service, model } = await serve(t, engine);
      assert.equal((await service.post(`${CHAT}/c/cancel`, { userId: "u" })).status, 404);
      await leftInTheMiddle({ service, model });
      const reader = new EventReader(service.url + STREAM);
      await reader.until(() => reader.text.includes("half 1"));
      for (const userId of ["v", "U"]) assert.equal((await service.post(`${CHAT}/c/cancel`, { userId })).status, 404);
      assert.deepEqual(await dataOf(service.post(`${CHAT}/c/cancel`, { userId: "u" })), { cancelled: true });
      await reader.end();
      assert.equal(reader.events.at(-1)!.type, "abort");
      const again = await service.post(`${CHAT}/c/cancel`, { userId: "u" });
      assert.equal(again.status, 404);
      assert.match(((await again.json()) as Loose).error, /nothing runs in conversation "c"/);
      assert.equal((await service.get(STREAM)).status, 204);
      const { messages } = await dataOf(service.get("/api/memory/conversations/c/messages?userId=u"));
      assert.match(JSON.stringify(messages.at(-1)), /half 1/);
    });

    test("GET /agents/:id/chat/:conversationId/stream of another user, conversation or agent, or of nobody, as the hook asks: 204", async (t) => {
      const { service, model } = await serve(t, engine);
      await leftInTheMiddle({ service, model });
      for (const path of [
        `${CHAT}/c/stream?userId=v`,
        `${CHAT}/d/stream?userId=u`,
        "/agents/other/chat/c/stream?userId=u",
        `${CHAT}/c/stream`,
      ])
        assert.equal((await service.get(path)).status, 204, path);
      assert.equal((await service.get("/agents/none/chat/c/stream?userId=u")).status, 404);
      assert.equal((await service.post(`${CHAT}/c/cancel`, {})).status, 400);
      assert.equal((await service.get(STREAM)).status, 200);
      model.release(QUESTION);
    });

    test("of two runs of a conversation GET .../stream reads the newest, and POST .../cancel ends that one", async (t) => {
      const { service, model } = await serve(t, engine);
      const input = (n: number) => `question ${n}`;
      const asked = async (n: number) => {
        model.hold(input(n));
        const client = new EventReader(`${service.url}/agents/forgetful/chat`, { input: input(n), options: options() });
        await client.until(() => client.text.includes("half"));
      };
      await asked(1);
      await asked(2);
      const path = "/agents/forgetful/chat/c";
      const newest = async () => {
        const reader = new EventReader(`${service.url}${path}/stream?userId=u`);
        await reader.until(() => reader.text.includes("half"));
        reader.leave();
        return textOf(reader.events);
      };
      assert.equal(await newest(), "half 2 ");
      await dataOf(service.post(`${path}/cancel`, { userId: "u" }));
      assert.equal(await newest(), "half 1 ");
      model.release(input(1));
      await eventually(async () => (await service.get(`${path}/stream?userId=u`)).status === 204, "the end");
    });
  });
}

test("POST /agents/:id/chat with options.resumableStream needs a user and a conversation", async (t) => {
  const { service } = await serve(t, "memory");
  for (const missing of ["userId", "conversationId"]) {
    const body = { input: QUESTION, options: options({ [missing]: undefined }) };
    const reply = await service.post(CHAT, body);
    assert.equal(reply.status, 400, missing);
    assert.match(
      ((await reply.json()) as Loose).error,
      /options\.resumableStream needs memory\.userId and memory\.conversationId/,
    );
  }
  const { messages, ...hook } = {
    id: "h",
    messages: [{ id: "1", role: "user", parts: [{ type: "text", text: "x" }] }],
  };
  const reply = await service.post(CHAT, { ...hook, messages, options: { resumableStream: true, userId: "u" } });
  assert.equal(reply.status, 200, "the hook's id is the conversation");
  assert.match(await reply.text(), /half 1 /);
});

test("POST /agents/:id/chat without options.resumableStream is not found by GET .../stream", async (t) => {
  const { service, model } = await serve(t, "sqlite", { agents: { teller: { model: "held/any", durable: true } } });
  model.hold(QUESTION);
  const client = ask(service, QUESTION, { resumableStream: undefined });
  await client.until(() => client.text.includes("half"));
  assert.equal((await service.get(STREAM)).status, 204);
  model.release(QUESTION);
  await client.end();
});

test("GET /agents/:id/runs/:runId/stream?format=chat: the UI message stream, after Last-Event-ID too", async (t) => {
  const { service, model } = await serve(t, "sqlite");
  const client = await leftInTheMiddle({ service, model });
  model.release(QUESTION);
  const path = `/agents/teller/runs/${client.headers["x-run-id"]}/stream`;
  const raw = new EventReader(service.url + path);
  const chat = new EventReader(`${service.url + path}?format=chat`);
  await Promise.all([raw.end(), chat.end()]);
  assert.equal(chat.headers["x-vercel-ai-ui-message-stream"], "v1");
  assert.equal(raw.headers["x-vercel-ai-ui-message-stream"], undefined);
  assert.ok(chat.text.endsWith("data: [DONE]\n\n"));
  assert.ok(!raw.text.includes("[DONE]"));
  assert.equal(chat.events[0]!.messageId, `msg_${client.headers["x-run-id"]}`);
  assert.deepEqual(
    chat.sent.map(({ id }) => id).slice(0, -1),
    raw.sent.map(({ id }) => id),
    "with the numbers of its parts",
  );
  const reply = await service.get(`${path}?format=chat`, { "last-event-id": "4" });
  assert.equal(await reply.text(), chat.text.slice(chat.text.indexOf("id: 5\n")));
  const refused = await service.get(`${path}?format=xml`);
  assert.equal(refused.status, 400);
  assert.match(((await refused.json()) as Loose).error, /format/);
});
