/**
 * Without authentication on the loopback: a name that was made to lead here is no way in (DNS rebinding), on whatever a page of
 * that name could ask for.
 */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { FIXTURES } from "../support/fixtures.ts";
import { inject } from "../support/inject.ts";
import { injectUpgrade } from "../support/inject-upgrade.ts";
import { parseReplies, RawClient } from "../support/raw-http.ts";
import { manifestWith, startService, type TestService } from "../support/service.ts";
import { openSocket } from "../support/sockets.ts";
import { TRANSPORTS } from "../support/transports.ts";

const EVIL = "evil.example";

function serve(t: TestContext, server: object = {}, rest: object = {}) {
  const more = {
    tools: { sum: { use: "add" } },
    routes: [{ use: "hello" }],
    mcp: { servers: { main: { tools: ["sum"] } } },
  };
  return startService(t, manifestWith({}, { server, ...more, ...rest }), { plugins: [FIXTURES] });
}

/** Sends a request line as it is; null where the connection ends without a reply. */
async function ask(service: TestService, line: string, headers: readonly string[], body = "") {
  const client = await RawClient.open(service.port);
  const head = line.startsWith("HEAD ");
  try {
    const length = body === "" ? [] : [`content-length: ${body.length}`];
    await client.send([`${line} HTTP/1.1`, ...headers, ...length, "connection: close", "", body].join("\r\n"));
    await client.until((received) => parseReplies(received, head).length > 0);
    return parseReplies(client.received, head)[0] ?? null;
  } finally {
    client.close();
  }
}

const LINES = [
  "GET /",
  "GET /agents",
  "HEAD /agents",
  "OPTIONS /agents",
  "OPTIONS /setup-observability",
  "GET /doc",
  "GET /docs",
  "GET /ui",
  "GET /metrics",
  "GET /updates",
  "GET /api/logs",
  "GET /observability/traces",
  "GET /api/memory/conversations",
  "GET /.well-known/agent-card.json",
  "GET /mcp/servers",
  "GET /hello",
  "GET /nowhere",
  "GET /healthz//",
  "DELETE /agents",
  "PROPFIND /agents",
];
const HANDSHAKE = [
  "connection: upgrade",
  "upgrade: websocket",
  "sec-websocket-version: 13",
  "sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==",
];
const JSON_TYPE = "content-type: application/json";
const CALLS: [line: string, body: string][] = [
  ["POST /tools/sum/execute", '{"input":{"a":1,"b":2}}'],
  ["POST /agents/assistant/text", '{"input":"x"}'],
  ["POST /agents/assistant/stream", '{"input":"x"}'],
  ["POST /mcp/main/mcp", '{"jsonrpc":"2.0","id":1,"method":"tools/list"}'],
  ["POST /a2a/assistant", '{"jsonrpc":"2.0","id":1,"method":"GetTask"}'],
  ["POST /setup-observability", '{"publicKey":"a","secretKey":"b"}'],
];

for (const transport of TRANSPORTS) {
  test(`over ${transport}, without auth on the loopback, every route but the probes is 403 for a host that is not the service's`, async (t) => {
    const service = await serve(t, { transport });
    for (const host of [EVIL, `${EVIL}:${service.port}`]) {
      for (const line of LINES) {
        const reply = await ask(service, line, [`host: ${host}`]);
        assert.equal(reply?.status, 403, `${line} at ${host}`);
        assert.equal(reply.headers["x-error-code"], "forbidden", line);
        if (!line.startsWith("HEAD")) assert.match(reply.body, /"error":".*evil\.example.*server\.allowedHosts/, line);
      }
      for (const [line, body] of CALLS) {
        const origin = `origin: http://${host}`;
        const reply = await ask(service, line, [`host: ${host}`, JSON_TYPE, origin], body);
        assert.equal(reply?.status, 403, `${line} at ${host}`);
      }
      for (const path of ["/ws", "/ws/logs", "/ws/observability/x", "/nowhere"]) {
        const reply = await ask(service, `GET ${path}`, [`host: ${host}`, ...HANDSHAKE]);
        assert.deepEqual([reply?.status, reply?.headers["x-error-code"]], [403, "forbidden"], path);
      }
      for (const line of ["GET /healthz", "HEAD /healthz", "GET /healthz/", "GET /readyz"])
        assert.equal((await ask(service, line, [`host: ${host}`]))?.status, 200, line);
    }
    const socket = await openSocket(`${service.url}/ws`);
    socket.close();
  });

  test(`every route over ${transport}: every spelling of the loopback is let in, and what only looks like it is not`, async (t) => {
    const server = {
      transport,
      publicUrl: "https://Desk.example:8443/base",
      allowedHosts: ["lan.example", "10.0.0.7"],
    };
    const service = await serve(t, server);
    for (const host of [
      "localhost",
      "localhost:1",
      `LOCALHOST:${service.port}`,
      "localhost.",
      "localhost.:80",
      "app.localhost:3141",
      "127.0.0.1",
      `127.0.0.1:${service.port}`,
      "127.8.9.10",
      "[::1]",
      "[::1]:3141",
      "[0:0:0:0:0:0:0:1]:3141",
      "[::ffff:127.0.0.1]:3141",
      "[::ffff:7f00:1]",
      "desk.example",
      "DESK.EXAMPLE:8443",
      "desk.example.:1",
      "lan.example:80",
      "10.0.0.7:3141",
    ])
      assert.equal((await ask(service, "GET /agents", [`host: ${host}`]))?.status, 200, host);
    for (const host of [
      "localhost.evil.example",
      "127.0.0.1.evil.example",
      "127.evil.example",
      "evil-localhost",
      "xlocalhost",
      "evil.desk.example",
      "desk.example.evil.example",
      "10.0.0.8",
      "0.0.0.0",
      "128.0.0.1",
      "[::2]",
      "[::ffff:10.0.0.1]",
      "localhost@evil.example",
      "localhost:80@evil.example",
      "evil.example@localhost",
      "evil.example/localhost",
      "evil.example#localhost",
      "localhost%2eevil.example",
      "localhost:x",
      "localhost localhost",
      "::1",
      ":3141",
    ]) {
      const status = (await ask(service, "GET /agents", [`host: ${host}`]))?.status;
      assert.ok(status === 403 || status === 400, `${host}: ${status}`);
    }
    for (const headers of [[], ["host:"], ["host: localhost", `host: ${EVIL}`], [`host: ${EVIL}`, "host: localhost"]]) {
      const client = await RawClient.open(service.port);
      await client.send(["GET /agents HTTP/1.1", ...headers, "", ""].join("\r\n"));
      // uWebSockets.js never answers a request without a host.
      await client.until((received) => received.length > 0, 500).catch(() => {});
      assert.ok(!client.received.startsWith("HTTP/1.1 2"), `${headers}: ${client.received}`);
      client.close();
    }
  });

  test(`every route over ${transport}: the host of an absolute request target counts, and not the header beside it`, async (t) => {
    const service = await serve(t, { transport });
    const evil = await ask(service, `GET http://${EVIL}/agents`, ["host: localhost"]);
    assert.ok(evil === null || evil.status === 403 || evil.status === 505, String(evil?.status));
    const user = await ask(service, `GET http://localhost@${EVIL}/agents`, ["host: localhost"]);
    assert.ok(user === null || user.status === 403 || user.status === 505, String(user?.status));
    const own = await ask(service, "GET http://localhost:1/agents", [`host: ${EVIL}`]);
    assert.equal(own?.status, transport === "uws" ? 505 : 200);
  });

  test(`every route over ${transport}: with auth, or listening on all addresses, any host will do`, async (t) => {
    const auth = {
      mode: "authNext",
      provider: { use: "static", tokens: { "token-of-ada-0123456789": { id: "ada" } } },
    };
    const secured = await serve(t, { transport }, { auth });
    const token = "authorization: Bearer token-of-ada-0123456789";
    const call = await ask(secured, "POST /tools/sum/execute", [`host: ${EVIL}`, token, JSON_TYPE], CALLS[0]![1]);
    assert.equal(call?.status, 200);
    assert.equal((await ask(secured, "GET /agents", [`host: ${EVIL}`]))?.status, 401);
    const open = await serve(t, { transport, host: "0.0.0.0" });
    assert.equal((await ask(open, "GET /agents", [`host: ${EVIL}`]))?.status, 200);
    const named = await serve(t, { transport, host: "0.0.0.0", allowedHosts: ["desk.example"] });
    const statuses = await Promise.all(
      [EVIL, "desk.example:3141", "localhost", "127.0.0.1"].map((host) => ask(named, "GET /agents", [`host: ${host}`])),
    );
    assert.deepEqual(
      statuses.map((each) => each?.status),
      [403, 200, 200, 200],
      "on every address where server.allowedHosts is set",
    );
    assert.ok(open.booted.issues.some(({ message }) => /open to everybody who reaches 0\.0\.0\.0/.test(message)));
  });
}

test("every route: behind a trusted proxy X-Forwarded-Host is looked at in place of Host, and of nobody else", async (t) => {
  const server = { trustedProxies: ["10.0.0.0/8"], publicUrl: "https://desk.example", allowedHosts: ["lan.example"] };
  const service = await serve(t, server);
  const status = async (host: string, forwarded: string | null, remoteAddress = "10.0.0.1") => {
    const headers = { host, ...(forwarded !== null && { "x-forwarded-host": forwarded }) };
    return (await inject(service.dispatch, { path: "/agents", headers, remoteAddress })).status;
  };
  for (const forwarded of ["desk.example", "desk.example:8443", "lan.example", "LAN.example.", "localhost:8080"])
    assert.equal(await status("inner", forwarded), 200, forwarded);
  for (const forwarded of [
    EVIL,
    `${EVIL}.`,
    "e!vil.example",
    "localhost, evil.example",
    "evil.example, localhost",
    "desk.example,",
    "localhost@evil.example",
  ])
    for (const host of ["inner", "localhost:3141", "127.0.0.1:3141"])
      assert.equal(await status(host, forwarded), 403, `${forwarded} at ${host}`);
  assert.equal(await status("inner", null), 403);
  assert.equal(await status("127.0.0.1:3141", null), 200);
  assert.equal(await status("inner", "desk.example", "11.0.0.1"), 403, "of a peer that is not trusted");
  assert.equal(await status("localhost", EVIL, "11.0.0.1"), 200, "of a peer that is not trusted");
  // A page that comes past the proxy can say what it likes in X-Forwarded-Host, and not in Host.
  assert.equal(await status(`${EVIL}:3141`, "desk.example"), 403);
  assert.equal(await status(`${EVIL}.:3141`, "localhost"), 403);

  const handshake = async (headers: Record<string, string>) => {
    const reply = await injectUpgrade(service.upgrade, { path: "/ws", headers });
    reply.socket?.close();
    return reply.status;
  };
  assert.equal(await handshake({ host: "localhost" }), 101);
  assert.equal(await handshake({ host: EVIL, origin: `http://${EVIL}` }), 403);
  assert.equal(await handshake({ host: "inner", "x-forwarded-host": "desk.example" }), 403, "127.0.0.1 is not trusted");
});
