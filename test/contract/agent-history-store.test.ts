/** Contract, "Agents": `GET /agents/:id/history` over restarts, with a store that keeps. */
import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { type Running, start } from "../../core/app/start.ts";
import { EventReader } from "../support/event-reader.ts";
import { dataOf, type Loose } from "../support/served-upstream.ts";
import { manifestWith } from "../support/service.ts";

/** Starts over one folder, as often as it is called. */
async function folderOf(t: TestContext, manifest: object) {
  const folder = await mkdtemp(join(tmpdir(), "penstock-"));
  const config = join(folder, "service.yaml");
  await writeFile(config, JSON.stringify(manifest));
  const started: Running[] = [];
  t.after(async () => {
    for (const running of started) await running.kill();
    await rm(folder, { recursive: true, force: true });
  });
  return async () => {
    const running = await start({ config, port: 0, env: {}, log: { write: () => undefined } });
    started.push(running);
    return running;
  };
}

test("GET /agents/:id/history and the conversations are there after an orderly stop, all of them", async (t) => {
  const manifest = manifestWith({ memory: "default" }, { store: "sqlite:data/test.db", memory: { default: {} } });
  const serve = await folderOf(t, manifest);
  let running = await serve();
  const post = (input: string, options: object) =>
    fetch(`${running.url}/agents/assistant/text`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ input, options }),
    });
  for (let index = 0; index < 30; index++) await dataOf(post(`run ${index}`, { conversationId: "c" }));
  // Stopped at once: what ended last has not been written yet.
  await running.stop();
  running = await serve();
  const history = async (query: string) => dataOf(fetch(`${running.url}/agents/assistant/history${query}`));
  const { entries, total } = await history("?limit=100");
  assert.equal(total, 30);
  assert.deepEqual(
    entries.map(({ output, status }: Loose) => [output, status]),
    Array.from({ length: 30 }, (_, index) => [`run ${29 - index}`, "completed"]),
  );
  await dataOf(post("run 30", { conversationId: "c" }));
  assert.equal((await history("?page=0&limit=1")).entries[0].input, "run 30");
  assert.equal((await history("?page=30&limit=1")).entries[0].input, "run 0");
  const { messages } = await dataOf(fetch(`${running.url}/api/memory/conversations/c/messages?limit=100`));
  assert.deepEqual(
    messages.map(({ parts }: Loose) => parts.at(-1).text),
    Array.from({ length: 62 }, (_, index) => `run ${Math.floor(index / 2)}`),
  );
});

test("a run that the stop of the service cuts off leaves what was said, in the conversation and in the history", async (t) => {
  const serve = await folderOf(
    t,
    manifestWith(
      { memory: "default" },
      {
        store: "sqlite:data/test.db",
        memory: { default: {} },
        providers: { demo: { use: "scripted", chunks: 1000, delay: "20ms" } },
        server: { limits: { drain: "100ms" } },
      },
    ),
  );
  const first = await serve();
  const input = "word ".repeat(2000);
  const options = { conversationId: "c" };
  const reader = new EventReader(`${first.url}/agents/assistant/stream`, { input, options });
  await reader.until(() => reader.text.includes("text-delta"));
  await first.stop();
  const second = await serve();
  const { messages } = await dataOf(fetch(`${second.url}/api/memory/conversations/c/messages`));
  assert.equal(messages.length, 2);
  assert.deepEqual(messages[1].metadata, { status: "cancelled" });
  const said = messages[1].parts.at(-1).text;
  assert.ok(said.length > 0 && said.length < input.length && input.startsWith(said), `${said.length} characters`);
  const { entries, total } = await dataOf(fetch(`${second.url}/agents/assistant/history`));
  assert.equal(total, 1);
  assert.equal(entries[0].status, "cancelled");
});
