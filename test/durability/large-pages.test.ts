/** Large pages over HTTP: the head alone, a reader that takes nothing, and a store that fails in the middle. */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { pluginFolder } from "../support/plugin-folder.ts";
import { RawClient } from "../support/raw-http.ts";
import { startService, type TestService } from "../support/service.ts";
import { TRANSPORTS } from "../support/transports.ts";

const MESSAGES = 48;
const CHARACTERS = 1024 * 1024;
const HANG_MS = 60_000;
/** Longer than a reader may take nothing: what is written counts as a sign of life. */
const PROBE_MS = 2_000;
const MEMORY_STORE = fileURLToPath(new URL("../../core/storage/memory-store.ts", import.meta.url));
const ERRORS = fileURLToPath(new URL("../../core/lib/errors.ts", import.meta.url));

/** A store that counts the large rows that it gave whole, and gives no more than the world allows. */
const PLUGINS = {
  "stores/counted.mjs": `import { createMemoryStore } from ${JSON.stringify(MEMORY_STORE)};
    import { unavailable } from ${JSON.stringify(ERRORS)};
    export default { kind: "store", create: () => {
      const store = createMemoryStore();
      const world = globalThis.penstockLargePages;
      return { ...store, kind: "counted",
        getMany: async (keys, longest) => {
          const rows = await store.getMany(keys, longest);
          for (const row of rows) if (row !== undefined && row.value.length > ${CHARACTERS}) world.read++;
          if (world.read > world.allowed) throw unavailable("storage is unavailable: it is away");
          return rows;
        } };
    } };`,
};

const world = { read: 0, allowed: Number.POSITIVE_INFINITY };
(globalThis as { penstockLargePages?: typeof world }).penstockLargePages = world;

const PATH = `/api/memory/conversations/c/messages?limit=${MESSAGES}`;
/** Ends a body in chunks. */
const END = "\r\n0\r\n\r\n";

async function startFilled(t: TestContext, transport: string): Promise<TestService> {
  Object.assign(world, { read: 0, allowed: Number.POSITIVE_INFINITY });
  const server = { transport, limits: { body: "8MiB", stall: "500ms" } };
  const manifest = { name: "Large pages", version: "1.0.0", store: "counted", server, memory: { default: {} } };
  const service = await startService(t, manifest, { plugins: [pluginFolder(t, PLUGINS)] });
  await service.post("/api/memory/conversations", { conversationId: "c", userId: "ada", resourceId: "r" });
  for (let n = 0; n < MESSAGES; n += 4) {
    const messages = [0, 1, 2, 3].map((index) => ({
      message: { id: `m${n + index}`, role: "user", content: `${n + index} ${"x".repeat(CHARACTERS)}` },
    }));
    const saved = await service.post("/api/memory/save-messages", { conversationId: "c", userId: "ada", messages });
    assert.equal(saved.status, 200, await saved.text());
  }
  world.read = 0;
  return service;
}

const request = (method: string) => `${method} ${PATH} HTTP/1.1\r\nHost: localhost\r\n\r\n`;
const portOf = ({ url }: TestService) => Number(new URL(url).port);

async function connect(t: TestContext, service: TestService): Promise<RawClient> {
  const client = await RawClient.open(portOf(service));
  t.after(() => client.close());
  return client;
}

for (const transport of TRANSPORTS) {
  test(`HEAD .../messages on ${transport}: a large page has the head of GET and no body, reads little, and its connection goes on`, async (t) => {
    const service = await startFilled(t, transport);
    const client = await connect(t, service);
    await client.send(request("HEAD"));
    const [head] = await client.replies(1, true);
    assert.deepEqual([head?.status, head?.headers["content-type"]], [200, "application/json; charset=utf-8"]);
    assert.equal(head?.headers["content-length"], undefined);
    await client.send("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
    await client.until((received) => (received.match(/HTTP\/1\.1 /g) ?? []).length === 2);
    assert.match(client.received, /^HTTP\/1\.1 200 [\s\S]*?\r\n\r\nHTTP\/1\.1 /, "nothing follows the first head");
    assert.ok(world.read <= 2, `${world.read} of ${MESSAGES} messages were read`);
  });

  test(`GET .../messages on ${transport}: for a reader that takes nothing little is read, others are served, and a time limit ends it`, async (t) => {
    const service = await startFilled(t, transport);
    const slow = await connect(t, service);
    slow.socket.pause();
    await slow.send(request("GET"));
    const { data } = (await (await service.get(PATH)).json()) as { data: { messages: { id: string }[] } };
    assert.deepEqual(
      data.messages.map(({ id }) => id),
      Array.from({ length: MESSAGES }, (_, n) => `m${n}`),
    );
    // What is not read cannot be sent: the connection ends before the end of the page. Only a write shows it to who does not read.
    for (const end = Date.now() + HANG_MS; !slow.isClosed && Date.now() < end; await sleep(PROBE_MS))
      slow.socket.write("\r\n");
    assert.ok(slow.isClosed, "the reader is cut off");
    assert.ok(!slow.received.endsWith(END));
    assert.ok(world.read > MESSAGES, "it was sent some of it, which sockets of the kernel hold");
    assert.ok(world.read < MESSAGES + MESSAGES / 2, `${world.read - MESSAGES} messages were read for nobody`);
  });

  test(`GET .../messages on ${transport}: when the store fails midway the connection is cut, so that the page does not look complete`, async (t) => {
    const service = await startFilled(t, transport);
    world.allowed = MESSAGES / 2;
    const client = await connect(t, service);
    await client.send(request("GET"));
    await client.closed;
    assert.match(client.received, /^HTTP\/1\.1 200 /);
    assert.ok(client.received.length > CHARACTERS, "some of it was sent");
    assert.ok(!client.received.endsWith(END), "its end was not");
    await assert.rejects(async () => (await service.get(PATH)).text());
    world.allowed = Number.POSITIVE_INFINITY;
    assert.equal(((await (await service.get(PATH)).json()) as { success: boolean }).success, true);
  });
}
