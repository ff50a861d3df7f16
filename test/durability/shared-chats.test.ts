/** Chats that two real processes over one PostgreSQL answer: each reads, follows and cancels what the other runs, and goes on with it. */
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, type TestContext, test } from "node:test";
import { PENSTOCK, type Served, serve } from "../support/command-line.ts";
import { EventReader } from "../support/event-reader.ts";
import { heldModel } from "../support/held-model.ts";
import { NO_POSTGRES, sharedPostgres } from "../support/postgres.ts";
import { dataOf, type Loose } from "../support/served-upstream.ts";

const server = await sharedPostgres();
const skip = server === null ? NO_POSTGRES : false;
/** What ends with this file. */
const file = { after } as unknown as Pick<TestContext, "after">;
const model = heldModel(file);
const folder = mkdtempSync(join(tmpdir(), "penstock-chats-"));
after(() => rmSync(folder, { recursive: true, force: true }));
const url = await server?.createDatabase();
const config = join(folder, "service.yaml");
writeFileSync(
  config,
  JSON.stringify({
    name: "Test",
    version: "1.0.0",
    store: url,
    providers: { held: model.settings },
    memory: { default: {} },
    agents: { teller: { model: "held/any" } },
  }),
);
const start = () =>
  serve(file, [process.execPath, PENSTOCK, "serve", "--config", config, "--plugins", model.plugins, "--port", "0"]);
const [one, other] = (server === null ? [] : await Promise.all([start(), start()])) as [Served, Served];

const CHAT = "/agents/teller/chat";
const streamOf = (to: Served, conversation: string) =>
  new EventReader(`${to.url}${CHAT}/${conversation}/stream?userId=ada`);
const statusOf = async (to: Served, conversation: string) =>
  (await fetch(`${to.url}${CHAT}/${conversation}/stream?userId=ada`)).status;
const cancel = (to: Served, conversation: string) =>
  fetch(`${to.url}${CHAT}/${conversation}/cancel`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ userId: "ada" }),
  });
const textOf = ({ events }: EventReader) => events.map(({ delta }: Loose) => delta ?? "").join("");

/** A chat of which half of the answer is there. */
async function ask(to: Served, conversationId: string, input: string): Promise<EventReader> {
  model.hold(input);
  const options = { resumableStream: true, userId: "ada", conversationId };
  const client = new EventReader(to.url + CHAT, { input, options });
  await client.until(() => client.text.includes("half"));
  return client;
}

test("GET /agents/:id/chat/:conversationId/stream in another process than the run's replays and follows it; 204 in both when it has ended", {
  skip,
}, async () => {
  const client = await ask(one, "a", "a1");
  const tabs = [streamOf(one, "a"), streamOf(other, "a")];
  for (const tab of tabs) await tab.until(() => tab.text.includes("half"));
  model.release("a1");
  for (const reader of [client, ...tabs]) await reader.end();
  for (const tab of tabs) assert.deepEqual(tab.sent, client.sent);
  assert.match(textOf(client), /^half (\d+) rest \1$/);
  for (const process of [one, other]) assert.equal(await statusOf(process, "a"), 204);
});

test("POST /agents/:id/chat/:conversationId/cancel in another process than the run's ends it", { skip }, async () => {
  const client = await ask(one, "b", "b1");
  assert.equal((await cancel(other, "c")).status, 404);
  assert.deepEqual(await dataOf(cancel(other, "b")), { cancelled: true });
  await client.end();
  assert.equal(client.events.at(-1)!.type, "abort");
  for (const process of [one, other]) {
    assert.equal((await cancel(process, "b")).status, 404);
    assert.equal(await statusOf(process, "b"), 204);
  }
});

test("GET /agents/:id/chat/:conversationId/stream: after kill -9 of the process that runs the answer another one goes on with it, for readers of before and after", {
  skip,
}, async () => {
  const client = await ask(one, "d", "d1");
  const before = streamOf(other, "d");
  await before.until(() => before.text.includes("half"));
  await one.interrupt("SIGKILL");
  await model.isAsked("d1", 2);
  const later = streamOf(other, "d");
  for (const reader of [before, later]) await reader.until(() => reader.text.match(/half/g)?.length === 2);
  model.release("d1");
  for (const reader of [before, later]) await reader.end();
  assert.deepEqual(before.sent, later.sent);
  assert.deepEqual(later.events.slice(0, client.events.length), client.events);
  assert.match(textOf(later), /^half (\d+) half (\d+) rest \2$/);
  assert.equal(later.events.filter(({ type }) => type === "start-step").length, 2);
  assert.equal(await statusOf(other, "d"), 204);
  const rows = await server!.query("SELECT key FROM penstock WHERE key LIKE 'xr/%' OR key LIKE 'xo/%'", url);
  assert.deepEqual(rows, []);
});
