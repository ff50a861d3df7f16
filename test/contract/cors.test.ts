/** Contract, "Extension: custom routes and CORS": which origins may call, for the whole service and for single routes. */
import assert from "node:assert/strict";
import { describe, type TestContext, test } from "node:test";
import { pluginFolder } from "../support/plugin-folder.ts";
import { manifestWith, startService, type TestService } from "../support/service.ts";
import { SECRET, token } from "../support/tokens.ts";
import { TRANSPORTS } from "../support/transports.ts";

const A = "https://a.example";
const B = "https://b.example";

const PLUGINS = {
  "routes/open.mjs": `export default { kind: "route", name: "open", method: "GET", path: "/open/:id", cors: { origin: "${A}" }, handle: () => 1 };`,
  "routes/shut.mjs": `export default { kind: "route", name: "shut", method: "GET", path: "/shut", cors: false, handle: () => 1 };`,
  "routes/asked.mjs": `export default { kind: "route", name: "asked", method: "POST", path: "/asked",
    cors: { origin: (origin) => (origin.endsWith("b.example") ? origin : undefined) }, handle: () => 1 };`,
  "origins/example.mjs": `export default { kind: "origin", name: "example", ending: ".example",
    origin(origin) { return origin.endsWith(this.ending) ? origin : undefined; } };`,
};

function serve(t: TestContext, server: object, rest: object = {}) {
  return startService(t, manifestWith({}, { server, ...rest }), { plugins: [pluginFolder(t, PLUGINS)] });
}

async function headersOf(
  service: TestService,
  method: string,
  path: string,
  origin = A,
  more: Record<string, string> = {},
) {
  const reply = await fetch(service.url + path, { method, headers: { origin, ...more } });
  await reply.arrayBuffer();
  return { status: reply.status, get: (name: string) => reply.headers.get(name) };
}

const allowed = async (...from: Parameters<typeof headersOf>) =>
  (await headersOf(...from)).get("access-control-allow-origin");

for (const transport of TRANSPORTS) {
  describe(`CORS over ${transport}`, () => {
    test("without settings every origin may call every route, failures included, and preflights are answered", async (t) => {
      const service = await serve(t, { transport });
      for (const path of ["/agents", "/doc", "/healthz", "/nothing"])
        assert.equal(await allowed(service, "GET", path), "*");
      assert.equal(await allowed(service, "DELETE", "/agents"), "*");
      const preflight = await headersOf(service, "OPTIONS", "/agents/assistant/text", A, {
        "access-control-request-method": "POST",
        "access-control-request-headers": "content-type, x-mine",
      });
      assert.equal(preflight.status, 204);
      assert.equal(preflight.get("access-control-allow-origin"), "*");
      assert.equal(preflight.get("access-control-allow-methods"), "OPTIONS, POST");
      assert.equal(preflight.get("access-control-allow-headers"), "content-type, x-mine");
    });

    test("a request that browsers send without asking first is 403 for pages of foreign origins, and not for others", async (t) => {
      const service = await serve(t, { transport, cors: { origin: [A] } });
      const body = new TextEncoder().encode(JSON.stringify({ input: "hi" }));
      const statusFrom = async (headers: Record<string, string>, path = "/agents/assistant/text") => {
        const reply = await fetch(service.url + path, {
          method: "POST",
          headers,
          ...(path.endsWith("text") && { body }),
        });
        const { success } = (await reply.json()) as { success: boolean };
        return [reply.status, success];
      };
      assert.deepEqual(await statusFrom({ origin: B }), [403, false]);
      assert.deepEqual(await statusFrom({ origin: "null" }), [403, false]);
      assert.deepEqual(await statusFrom({ origin: B, "content-type": "text/plain" }), [403, false]);
      assert.deepEqual(await statusFrom({ origin: A, "content-type": "text/plain" }), [415, false]);
      assert.deepEqual(await statusFrom({ origin: A }), [200, true]);
      assert.deepEqual(await statusFrom({ origin: service.url }), [200, true]);
      assert.deepEqual(await statusFrom({}), [200, true], "a program");
      assert.deepEqual(
        await statusFrom({ origin: B }, "/workflows/none/executions/x/cancel"),
        [403, false],
        "without a body",
      );
      assert.deepEqual(await statusFrom({ origin: A }, "/workflows/none/executions/x/cancel"), [404, false]);
      // Of this the browser has asked before.
      assert.deepEqual(await statusFrom({ origin: B, "content-type": "application/json" }), [200, true]);
    });

    test("with settings: origin, allowHeaders, allowMethods, exposeHeaders, maxAge and credentials are what is sent", async (t) => {
      const cors = {
        origin: [A, "https://c.example"],
        allowHeaders: ["x-one", "x-two"],
        allowMethods: ["GET", "POST"],
        exposeHeaders: ["x-three"],
        maxAge: 600,
        credentials: true,
      };
      const service = await serve(t, { transport, cors });
      const reply = await headersOf(service, "GET", "/agents");
      assert.equal(reply.get("access-control-allow-origin"), A);
      assert.equal(reply.get("access-control-allow-credentials"), "true");
      assert.equal(reply.get("vary"), "Origin");
      assert.match(reply.get("access-control-expose-headers")!, /x-request-id.*mcp-session-id.*x-three/);
      const preflight = await headersOf(service, "OPTIONS", "/agents", A);
      assert.equal(preflight.get("access-control-allow-methods"), "GET, POST");
      assert.equal(preflight.get("access-control-allow-headers"), "x-one, x-two");
      assert.equal(preflight.get("access-control-max-age"), "600");
      const other = await headersOf(service, "GET", "/agents", B);
      assert.equal(other.status, 200);
      assert.equal(other.get("access-control-allow-origin"), null);
      assert.equal(other.get("access-control-allow-credentials"), null);
      assert.equal(other.get("vary"), "Origin");
    });

    test("cors: false sends nothing, but for the routes that corsRoutes or their plugin name", async (t) => {
      const corsRoutes = {
        "/agents/*": { origin: A },
        "GET /agents/:id": { origin: B },
        "/tools/**": { origin: { use: "example" } },
      };
      const routes = [{ use: "open" }, { use: "shut" }, { use: "asked" }];
      const service = await serve(t, { transport, cors: false, corsRoutes }, { routes });
      for (const path of ["/agents", "/doc", "/nothing", "/shut"])
        assert.equal(await allowed(service, "GET", path), null);
      assert.equal(await allowed(service, "POST", "/agents/assistant/text"), A);
      assert.equal(await allowed(service, "GET", "/agents/assistant/history"), A);
      assert.equal(await allowed(service, "GET", "/agents/assistant", B), B, "the pattern that says more counts");
      assert.equal(await allowed(service, "GET", "/agents/assistant", A), null);
      assert.equal(await allowed(service, "GET", "/tools", "https://z.example"), "https://z.example");
      assert.equal(await allowed(service, "OPTIONS", "/agents/assistant/text"), A);
      assert.equal(await allowed(service, "GET", "/open/1"), A);
      assert.equal(await allowed(service, "GET", "/open/1", B), null);
      assert.equal(await allowed(service, "POST", "/asked", B), B);
    });
  });
}

test("a route of its own settings has them on everything it answers: streams, refusals, failures and preflights", async (t) => {
  const auth = { mode: "authNext", provider: { use: "jwt", secret: SECRET } };
  const corsRoutes = { "POST /agents/:id/*": { origin: [A], credentials: true, maxAge: 60 } };
  const service = await serve(t, { cors: false, corsRoutes }, { auth });
  const ask = async (path: string, body: string, more: Record<string, string> = {}, origin = A) => {
    const headers = { origin, "content-type": "application/json", ...more };
    const reply = await fetch(service.url + path, { method: "POST", headers, body });
    return { status: reply.status, text: await reply.text(), of: (name: string) => reply.headers.get(name) };
  };
  const user = { authorization: `Bearer ${token({ sub: "ada" })}` };
  const input = JSON.stringify({ input: "x" });
  const ANSWERS: [path: string, body: string, headers: Record<string, string>, status: number][] = [
    ["/agents/assistant/stream", input, user, 200],
    ["/agents/assistant/chat", input, user, 200],
    ["/agents/assistant/text", "{}", user, 400],
    ["/agents/assistant/text", "{", user, 400],
    ["/agents/nobody/text", input, user, 404],
    ["/agents/assistant/text", input, {}, 401],
    ["/agents/assistant/text", input, { ...user, "content-type": "text/plain" }, 415],
  ];
  for (const [path, body, headers, status] of ANSWERS) {
    const reply = await ask(path, body, headers);
    assert.equal(reply.status, status, reply.text);
    assert.deepEqual([reply.of("access-control-allow-origin"), reply.of("vary")], [A, "Origin"], path);
    assert.equal(reply.of("access-control-allow-credentials"), "true");
    const foreign = await ask(path, body, headers, B);
    assert.deepEqual([foreign.of("access-control-allow-origin"), foreign.of("vary")], [null, "Origin"]);
  }
  const asked = { "access-control-request-method": "POST", "access-control-request-headers": "authorization" };
  const preflight = await headersOf(service, "OPTIONS", "/agents/assistant/stream", A, asked);
  assert.equal(preflight.status, 204);
  assert.deepEqual(
    ["origin", "methods", "headers", "credentials"].map((name) => preflight.get(`access-control-allow-${name}`)),
    [A, "OPTIONS, POST", "authorization", "true"],
  );
  assert.equal(preflight.get("access-control-max-age"), "60");
  const refused = await headersOf(service, "OPTIONS", "/agents/assistant/stream", B, asked);
  assert.equal(refused.get("access-control-allow-origin"), null);
  assert.equal(await allowed(service, "OPTIONS", "/tools/add/execute", A, asked), null, "no settings of its own");
});

test("a route plugin with cors: false is shut while the service is open", async (t) => {
  const service = await serve(t, {}, { routes: [{ use: "shut" }, { use: "open" }] });
  assert.equal(await allowed(service, "GET", "/shut"), null);
  assert.equal(await allowed(service, "GET", "/open/1"), A);
  assert.equal(await allowed(service, "GET", "/agents"), "*");
});

test("credentials with any origin are not given to any origin", async (t) => {
  const service = await serve(t, { cors: { credentials: true } });
  assert.equal(await allowed(service, "GET", "/agents"), "*", "which browsers refuse");
});

test("a pattern of corsRoutes that no route matches is a warning at its place", async (t) => {
  const service = await serve(t, { corsRoutes: { "GET /agnts/*": { origin: A }, "/agents": { origin: A } } });
  const { booted } = service as unknown as {
    booted: { issues: { path: string; message: string; severity: string }[] };
  };
  const [issue, ...more] = booted.issues.filter(({ path }) => path.includes("corsRoutes"));
  assert.deepEqual([issue!.path, issue!.severity], ['server.corsRoutes["GET /agnts/*"]', "warning"]);
  assert.deepEqual(more, []);
});
