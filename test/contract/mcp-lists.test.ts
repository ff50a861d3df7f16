/** `subscriptions/listen` of `/mcp/:serverId/mcp`: clients that listen hear that a list has changed. */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { eventually } from "../support/event-reader.ts";
import { startForeignServer } from "../support/mcp-server.ts";
import { reload } from "../support/reload.ts";
import { dataOf, type Loose } from "../support/served-upstream.ts";
import { manifestWith, startService, type TestService } from "../support/service.ts";
import { SECRET, token } from "../support/tokens.ts";

const ADD = { use: "add" };
const manifest = (rest: object) => manifestWith({}, rest);
const withTools = (...tools: string[]) =>
  manifest({ tools: { one: ADD, two: ADD }, mcp: { servers: { main: { tools } } } });

/** A client that listens to the server `main`. */
async function listen(t: TestContext, service: TestService) {
  const client = new Client(
    { name: "test", version: "1.0.0" },
    { versionNegotiation: { mode: { pin: "2026-07-28" } } },
  );
  await client.connect(new StreamableHTTPClientTransport(new URL(`${service.url}/mcp/main/mcp`)));
  t.after(() => client.close());
  const heard = { times: 0 };
  client.setNotificationHandler("notifications/tools/list_changed", () => {
    heard.times++;
  });
  const subscription = await client.listen({ toolsListChanged: true, promptsListChanged: true });
  assert.deepEqual(subscription.honoredFilter, { toolsListChanged: true }, "a server of Penstock has no prompts");
  const names = async () => (await client.listTools(undefined, { cacheMode: "refresh" })).tools.map(({ name }) => name);
  return { heard, names, subscription };
}

test("subscriptions/listen at /mcp/:serverId/mcp: one subscription hears of every reload that changes the list, and of no other", async (t) => {
  const service = await startService(t, withTools("one"));
  const { heard, names, subscription } = await listen(t, service);
  assert.deepEqual(await names(), ["one"]);

  assert.equal((await reload(service, { ...withTools("one"), agents: {} })).status, 200);
  assert.equal((await reload(service, withTools("one", "three"))).status, 400, "there is no tool called three");
  assert.equal((await reload(service, withTools("one", "two"))).status, 200);
  await eventually(() => heard.times > 0, "the client has heard of the change");
  assert.equal(heard.times, 1, "what changes nothing of the list, and what is refused, is not told");
  assert.deepEqual(await names(), ["one", "two"]);

  assert.equal((await reload(service, manifest({}))).status, 200);
  await eventually(() => heard.times > 1, "the client has heard that there is no server any more");
  assert.equal((await reload(service, withTools("two"))).status, 200);
  await eventually(() => heard.times > 2, "the client has heard of the change after that");
  assert.deepEqual(await names(), ["two"]);

  await Promise.all([service.stop(), subscription.closed]);
  assert.equal(await subscription.closed, "graceful", "the end of the service ends the stream, and waits for nobody");
});

test("subscriptions/listen at /mcp/:serverId/mcp: a foreign server that describes a tool otherwise is a change of the list", async (t) => {
  const foreign = await startForeignServer(t, "current");
  const mcp = { clients: { docs: { url: foreign.url } }, servers: { main: { tools: ["docs_search", "docs_grown"] } } };
  const service = await startService(t, manifest({ mcp }));
  const tools = async (): Promise<Loose[]> => dataOf(service.get("/tools"));
  await eventually(async () => (await tools()).find(({ name }) => name === "docs_search")?.status === "ready", "ready");
  const { heard } = await listen(t, service);

  assert.equal((await service.post("/tools/docs_grow/execute", { input: {} })).status, 200);
  await eventually(() => heard.times > 0, "the client has heard of the change");
  const { tools: listed } = await dataOf(service.get("/mcp/servers/main/tools"));
  assert.equal(listed[1].definition.description, "Has come later");
});

test("subscriptions/listen at /mcp/:serverId/mcp: of one user 100 are open, and one that ends makes room", async (t) => {
  const service = await startService(t, {
    ...withTools("one"),
    auth: { mode: "authNext", provider: { use: "jwt", secret: SECRET } },
  });
  const body = {
    jsonrpc: "2.0",
    id: 1,
    method: "subscriptions/listen",
    params: {
      notifications: { toolsListChanged: true },
      _meta: {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { name: "test", version: "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
      },
    },
  };
  const listens = async (sub: string, change: object = {}) => {
    const end = new AbortController();
    t.after(() => end.abort());
    const reply = await fetch(`${service.url}/mcp/main/mcp`, {
      method: "POST",
      headers: {
        authorization: `Bearer ${token({ sub })}`,
        "content-type": "application/json",
        accept: "application/json, text/event-stream",
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "subscriptions/listen",
      },
      body: JSON.stringify({ ...body, ...change }),
      signal: end.signal,
    });
    return { reply, end };
  };
  const malformed = await listens("ada", { params: { ...body.params, notifications: 1 } });
  assert.equal(JSON.parse(await malformed.reply.text()).error.code, -32602, "what is no subscription is not counted");
  const all = await Promise.all(Array.from({ length: 130 }, () => listens("ada")));
  const open = all.filter(({ reply }) => reply.status === 200);
  assert.equal(open.length, 100);
  const refused = all.find(({ reply }) => reply.status !== 200)!.reply;
  assert.deepEqual([refused.status, refused.headers.get("retry-after")], [429, "1"]);
  assert.match(((await refused.json()) as Loose).error, /^100 subscriptions of this user are open/);
  assert.equal((await listens("bob")).reply.status, 200);
  open[0]!.end.abort();
  await eventually(async () => (await listens("ada")).reply.status === 200, "there is room again");
});

test("initialize at /mcp/:serverId/mcp: earlier revisions of the protocol are not promised to hear of changes", async (t) => {
  const service = await startService(t, withTools("one"));
  const client = new Client({ name: "test", version: "1.0.0" }, { versionNegotiation: { mode: "legacy" } });
  await client.connect(new StreamableHTTPClientTransport(new URL(`${service.url}/mcp/main/mcp`)));
  t.after(() => client.close());
  assert.deepEqual(client.getServerCapabilities(), { tools: { listChanged: false } });
});
