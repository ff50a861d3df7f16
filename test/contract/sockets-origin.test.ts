/** Contract, "WebSockets" and "CORS": whose pages may open a socket, what stops a start, and how sockets end with the service. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { BootError } from "../../core/app/start.ts";
import { injectUpgrade } from "../support/inject-upgrade.ts";
import { pluginFolder } from "../support/plugin-folder.ts";
import { manifestWith, startService } from "../support/service.ts";
import { openSocket } from "../support/sockets.ts";
import { TRANSPORTS } from "../support/transports.ts";

const APP = "https://app.example";
const PLUGINS = {
  "sockets/live.mjs": `export default { kind: "socket", path: "/live/:id", open(peer) { peer.send(1); } };`,
  "sockets/tree.mjs": `export default { kind: "socket", path: "/tree/**", open(peer) { peer.send(1); } };`,
  "sockets/notes.mjs": `export default { kind: "socket", path: "/notes",
    async message(peer, { create, get }) {
      const memory = peer.call.memory();
      try {
        const { id, userId } = create ? await memory.create({ conversationId: create, resourceId: "assistant" }) : await memory.get(get);
        peer.send({ id, userId });
      } catch (error) {
        peer.send({ refused: error.kind });
      }
    } };`,
  "sockets/busy.mjs": `export default { kind: "socket", path: "/busy", message: () => new Promise(() => {}) };`,
  "origins/odd.mjs": `export default { kind: "origin", origin: (origin) => (origin.endsWith(".odd.example") ? "https://odd.example" : origin === "${APP}" ? origin : undefined) };`,
};

type Headers = Record<string, string>;

async function asker(t: Parameters<typeof startService>[0], given: object, rest: object = {}) {
  const server = { allowedHosts: ["penstock.example", "internal"], ...given };
  const plugins = [pluginFolder(t as never, PLUGINS)];
  const routes = [{ use: "live" }, { use: "tree" }];
  const service = await startService(t, manifestWith({}, { server, routes, ...rest }), { plugins });
  return async (origin: string | null, path = "/ws", headers: Headers = {}) => {
    const sent: Headers = { host: "penstock.example", ...headers, ...(origin !== null && { origin }) };
    const { status, socket, headers: got, text } = await injectUpgrade(service.upgrade, { path, headers: sent });
    socket?.close();
    if (status === 403) {
      assert.equal(got["x-error-code"], "forbidden");
      assert.match(
        text(),
        /^\{"success":false,"error":"(pages of .* may not open sockets here|the host .* is not known here): /,
      );
    }
    return status;
  };
}

test("WebSocket handshakes: by default every page may; a list names those that may, and null is a name like any other", async (t) => {
  const anybody = await asker(t, {});
  for (const origin of [null, APP, "https://evil.example", "null", "no origin at all", "http://penstock.example"])
    assert.equal(await anybody(origin), 101, String(origin));
  const listed = await asker(t, { cors: { origin: [APP, "http://127.0.0.1:8080"] } });
  for (const origin of [null, APP, "http://127.0.0.1:8080"]) assert.equal(await listed(origin), 101, String(origin));
  for (const origin of [
    "null",
    "https://evil.example",
    "http://app.example",
    "https://app.example:444",
    "https://app.example.evil.example",
    "https://evil.example/https://app.example",
    "HTTPS://APP.EXAMPLE",
    "https://app.example/",
    `${APP}, ${APP}`,
    " ",
  ])
    for (const path of ["/ws", "/live/1", "/tree/a", "/ws/observability/x", "/nowhere"])
      assert.equal(await listed(origin, path), 403, `${origin} ${path}`);
});

test("WebSocket handshakes: cors: false leaves pages of the service itself, by its address or its publicUrl, and programs", async (t) => {
  const ask = await asker(t, { cors: false, publicUrl: "https://penstock.example/base" });
  assert.equal(await ask(null), 101);
  assert.equal(await ask("https://penstock.example", "/ws", { host: "internal:3141" }), 101);
  assert.equal(await ask("http://127.0.0.1:3141", "/ws", { host: "127.0.0.1:3141" }), 101);
  assert.equal(await ask("http://localhost:3141", "/ws", { host: "localhost:3141" }), 101);
  // The name of a stranger's page may be made to lead here.
  assert.equal(await ask("http://evil.example:3141", "/ws", { host: "evil.example:3141" }), 403);
  assert.equal(await ask("http://127.0.0.1:8080", "/ws", { host: "127.0.0.1:3141" }), 403);
  assert.equal(await ask(APP), 403);
});

test("WebSocket handshakes: corsRoutes open single sockets, by their path and what stands for **; an origin plugin decides as it does for routes", async (t) => {
  const ask = await asker(t, {
    cors: false,
    corsRoutes: { "WS /live/:id": { origin: APP }, "WS /tree/open/*": {}, "GET /ws": {}, "/ws/observability/**": {} },
  });
  assert.equal(await ask(APP, "/live/1"), 101);
  assert.equal(await ask("https://evil.example", "/live/1"), 403);
  assert.equal(await ask(APP, "/ws"), 403, "GET is no handshake");
  assert.equal(await ask(APP, "/tree"), 403);
  assert.equal(await ask(APP, "/tree/open"), 403);
  assert.equal(await ask(APP, "/tree/open/a"), 101);
  assert.equal(await ask(APP, "/tree/other/a"), 403);
  assert.equal(await ask(APP, "/ws/observability/a/b"), 101);
  const odd = await asker(t, { cors: { origin: { use: "odd" } } });
  assert.equal(await odd(APP), 101);
  // What a browser would refuse to read is refused here.
  assert.equal(await odd("https://a.odd.example"), 403);
});

test("WebSocket handshakes: the origin goes before credentials, and credentials before the query and before what is there", async (t) => {
  const auth = { mode: "authNext", provider: { use: "static", tokens: { "token-of-ada-0123456789": { id: "ada" } } } };
  const env = { NODE_ENV: "production", SERVICE_CONSOLE_ACCESS_KEY: "key-0123456789" };
  const manifest = manifestWith({}, { auth, server: { cors: { origin: APP } } });
  const service = await startService(t, manifest, { env });
  const status = async (path: string, origin = APP) => {
    const reply = await injectUpgrade(service.upgrade, { path, headers: { origin } });
    reply.socket?.close();
    return reply.status;
  };
  assert.equal(await status("/ws/observability?key=key-0123456789", "https://evil.example"), 403);
  assert.equal(await status("/ws/observability?entityType=nonsense"), 401);
  assert.equal(await status("/ws/observability?entityType=nonsense&key=key-0123456789"), 400);
  assert.equal(await status("/ws/observability?key=key-0123456789"), 101);
  assert.equal(await status("/nowhere?key=key-0123456789"), 401);
  assert.equal(await status("/nowhere?token=token-of-ada-0123456789"), 404);
});

test("WebSocket handshakes: what a socket does with the service is its user's, and nobody else's", async (t) => {
  const tokens = { "token-of-ada-0123456789": { id: "ada" }, "token-of-bob-0123456789": { id: "bob" } };
  const auth = { mode: "authNext", provider: { use: "static", tokens } };
  const manifest = manifestWith({}, { auth, memory: { default: {} }, routes: [{ use: "notes" }] });
  const service = await startService(t, manifest, { plugins: [pluginFolder(t, PLUGINS)] });
  const open = (who: string) => openSocket(`${service.url}/notes?token=token-of-${who}-0123456789`);
  const [ada, bob] = [await open("ada"), await open("bob")];
  ada.send({ create: "c1" });
  assert.deepEqual(await ada.next(), { id: "c1", userId: "ada" });
  bob.send({ get: "c1" });
  assert.deepEqual(await bob.next(), { refused: "not_found" });
  ada.send({ get: "c1" });
  assert.deepEqual(await ada.next(), { id: "c1", userId: "ada" });
});

test("WebSocket handshakes: more messages than a handler keeps up with close the socket (1013)", async (t) => {
  const plugins = [pluginFolder(t, PLUGINS)];
  const service = await startService(t, manifestWith({}, { routes: [{ use: "busy" }] }), { plugins });
  const socket = await openSocket(`${service.url}/busy`);
  for (let count = 0; count < 300; count++) socket.send("1");
  assert.deepEqual(await socket.closed, { code: 1013, reason: "too many messages at once" });
});

test("WebSocket handshakes: a path that is taken, or that no handshake could mean, stops the start", async (t) => {
  const plugins = pluginFolder(t, {
    "sockets/ws.mjs": `export default { kind: "socket", path: "/ws" };`,
    "sockets/spans.mjs": `export default { kind: "socket", path: "/ws/observability/**" };`,
    "sockets/agent.mjs": `export default { kind: "socket", path: "/agents/:name" };`,
    "sockets/twice.mjs": `export default { kind: "socket", path: "/twice/:a" };`,
    "sockets/again.mjs": `export default { kind: "socket", path: "/twice/:b" };`,
    "sockets/star.mjs": `export default { kind: "socket", path: "/a/**/b" };`,
    "routes/here.mjs": `export default { kind: "route", method: "GET", path: "/ws", handle: () => 1 };`,
  });
  const names = ["ws", "spans", "agent", "twice", "again", "star", "here"];
  const manifest = manifestWith({}, { routes: names.map((use) => ({ use })) });
  await assert.rejects(startService(t, manifest, { plugins: [plugins] }), (error) => {
    assert.ok(error instanceof BootError);
    const messages = error.booted.issues.map(({ path, message }) => `${path}: ${message}`);
    assert.deepEqual(messages, [
      "routes[0].use: WS /ws is taken by another socket or route",
      "routes[1].use: WS /ws/observability/** is taken by another socket or route",
      "routes[2].use: WS /agents/:name is taken by another socket or route",
      "routes[4].use: WS /twice/:b is taken by another socket or route",
      "routes[5].use: WS /a/**/b has a * that means nothing: ** may stand as its last segment only",
      "routes[6].use: /ws is taken by a socket",
    ]);
    return true;
  });
});

for (const transport of TRANSPORTS) {
  test(`WebSocket handshakes: over ${transport} an open socket does not hold up the end of the service, and is told of it (1001)`, async (t) => {
    const service = await startService(t, manifestWith({}, { server: { transport } }));
    const sockets = await Promise.all(Array.from({ length: 20 }, () => openSocket(`${service.url}/ws`)));
    const began = performance.now();
    await service.stop();
    for (const socket of sockets)
      assert.deepEqual(await socket.closed, { code: 1001, reason: "the server is stopping" });
    assert.ok(performance.now() - began < 25_000, "the drain of 30 s was waited for");
  });
}
