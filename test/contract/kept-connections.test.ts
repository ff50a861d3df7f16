/** Kept connections that a server closes at the moment when they are used again. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { type TestContext, test } from "node:test";
import { dataOf, errorOf } from "../support/served-upstream.ts";
import { manifestWith, startService } from "../support/service.ts";
import { PROJECT } from "../support/strict-providers.ts";

/** A server that answers `answers` requests of a connection, and closes it when the next comes. */
async function closing(t: TestContext, answers: number, body: string, type = "application/json", isReset = false) {
  const sockets = new Set<Socket>();
  let requests = 0;
  const server = createServer((socket) => {
    sockets.add(socket);
    let answered = 0;
    let text = "";
    socket.on("error", () => {});
    socket.on("data", (data) => {
      text += data;
      if ((text.match(/(?:GET|POST) \S+ HTTP\/1\.1\r\n/g) ?? []).length <= answered) return;
      requests++;
      if (answered++ === answers) return void (isReset ? socket.resetAndDestroy() : socket.destroy());
      socket.write(`HTTP/1.1 200 OK\r\ncontent-type: ${type}\r\ncontent-length: ${body.length}\r\n\r\n${body}`);
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    connections: () => sockets.size,
    requests: () => requests,
  };
}

const COMPLETION = JSON.stringify({
  id: "1",
  object: "chat.completion",
  created: 1,
  model: "m",
  choices: [{ index: 0, message: { role: "assistant", content: "Hi." }, finish_reason: "stop" }],
});

function service(t: TestContext, url: string) {
  return startService(
    t,
    manifestWith(
      { model: "up/m" },
      {
        providers: { up: { use: "openai-compatible", baseURL: url, apiKey: "k", retries: 0 } },
        tools: {
          read: { description: "Reads", parameters: { type: "object" }, http: { url, retries: 0 } },
          write: { description: "Writes", parameters: { type: "object" }, http: { url, method: "POST", retries: 0 } },
        },
      },
    ),
  );
}

test("POST /agents/:id/text: a kept connection that the provider closes as it is used again costs no retry", async (t) => {
  const up = await closing(t, 1, COMPLETION);
  const { post } = await service(t, up.url);
  for (const _ of [1, 2, 3]) {
    const { text } = await dataOf(post("/agents/assistant/text", { input: "hi" }));
    assert.equal(text, "Hi.");
  }
  assert.equal(up.connections(), 3);
});

/** An answer of Anthropic. */
const MESSAGE = [
  {
    type: "message_start",
    message: { id: "m", role: "assistant", model: "m", content: [], usage: { input_tokens: 1 } },
  },
  { type: "content_block_start", index: 0, content_block: { type: "text", text: "" } },
  { type: "content_block_delta", index: 0, delta: { type: "text_delta", text: "Hi." } },
  { type: "content_block_stop", index: 0 },
  { type: "message_delta", delta: { stop_reason: "end_turn" }, usage: { output_tokens: 1 } },
  { type: "message_stop" },
].map((event) => `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`);

for (const isReset of [false, true])
  test(`POST /agents/:id/text on @ai-sdk/anthropic: a kept connection that is ${isReset ? "reset" : "closed"} as it is used again costs no retry, and a new one is a failure`, async (t) => {
    const text = { type: "text/event-stream", body: MESSAGE.join("") };
    const [up, down] = [
      await closing(t, 1, text.body, text.type, isReset),
      await closing(t, 0, text.body, text.type, isReset),
    ];
    const provider = (baseURL: string) => ({ use: "@ai-sdk/anthropic", retries: 0, options: { baseURL, apiKey: "k" } });
    const { post } = await startService(
      t,
      manifestWith(
        {},
        {
          providers: { up: provider(up.url), down: provider(down.url) },
          agents: {
            assistant: { model: "up/claude-sonnet-4-5", memory: false },
            other: { model: "down/claude-sonnet-4-5", memory: false },
          },
        },
      ),
      { project: PROJECT },
    );
    for (const _ of [1, 2, 3])
      assert.equal((await dataOf(post("/agents/assistant/text", { input: "hi" }))).text, "Hi.");
    assert.equal(up.connections(), 3);
    assert.match((await errorOf(post("/agents/other/text", { input: "hi" }))).error, /unavailable/);
    assert.equal(down.requests(), 1);
  });

test("POST /agents/:id/text: a provider that closes new connections is a failure, after one request", async (t) => {
  const up = await closing(t, 0, COMPLETION);
  const { post } = await service(t, up.url);
  const { status, error } = await errorOf(post("/agents/assistant/text", { input: "hi" }));
  assert.equal(status, 500);
  assert.match(error, /unavailable/);
  assert.equal(up.requests(), 1);
});

test("POST /tools/:name/execute: a kept connection that the server closes as it is used again costs a GET no retry", async (t) => {
  const up = await closing(t, 1, '{"ok":true}');
  const { post } = await service(t, up.url);
  for (const _ of [1, 2, 3]) {
    const { result } = await dataOf(post("/tools/read/execute", { input: {} }));
    assert.deepEqual(result, { ok: true });
  }
});

test("POST /tools/:name/execute: a POST whose kept connection is closed is not sent again, since it may have happened", async (t) => {
  const up = await closing(t, 1, '{"ok":true}');
  const { post } = await service(t, up.url);
  await dataOf(post("/tools/write/execute", { input: {} }));
  const { status, error } = await errorOf(post("/tools/write/execute", { input: {} }));
  assert.equal(status, 500);
  assert.match(error, /could not be reached/);
  assert.equal(up.requests(), 2);
});
