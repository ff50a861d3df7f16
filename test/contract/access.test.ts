/** Contract, "Authentication", over HTTP: what is asked of a request, in which order, and what a refusal says. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { runInNewContext } from "node:vm";
import { FIXTURES } from "../support/fixtures.ts";
import { inject } from "../support/inject.ts";
import type { Loose } from "../support/served-upstream.ts";
import { manifestWith, startService } from "../support/service.ts";

const TOKEN = "token-of-ada-0123456789";
const KEY = "console-key-0123456789";
const USER = { authorization: `Bearer ${TOKEN}` };
const CONSOLE = { "x-console-access-key": KEY };
const DEVELOPMENT = { "x-service-dev": "true" };
const PROVIDER = { use: "static", tokens: { [TOKEN]: { id: "ada" } } };
const PRODUCTION = { NODE_ENV: "production", SERVICE_CONSOLE_ACCESS_KEY: KEY };
const DEVELOPING = { SERVICE_CONSOLE_ACCESS_KEY: KEY };

const manifest = (auth: object = {}, rest: object = {}) =>
  manifestWith(
    {},
    {
      auth: { mode: "authNext", provider: PROVIDER, ...auth },
      routes: [{ use: "hello" }],
      logs: { level: "debug" },
      ...rest,
    },
  );
const TEXT = { method: "POST", path: "/agents/assistant/text", body: { input: "Hi" } };

describe("every route under authNext", () => {
  test("a token opens routes of users, the key those of the console, and neither the other's", async (t) => {
    const { dispatch } = await startService(t, manifest(), { env: PRODUCTION });
    const status = async (request: { method?: string; path: string; body?: unknown }, headers: object) =>
      (await inject(dispatch, { ...request, headers: { ...headers } })).status;
    const rows = [
      [TEXT, 401, 200, 401],
      [{ path: "/hello" }, 401, 200, 401],
      [{ path: "/agents" }, 401, 401, 200],
      [{ path: "/doc" }, 401, 401, 200],
      [{ path: "/healthz" }, 200, 200, 200],
    ] as const;
    for (const [request, nobody, user, console] of rows) {
      assert.equal(await status(request, {}), nobody, request.path);
      assert.equal(await status(request, USER), user, request.path);
      assert.equal(await status(request, CONSOLE), console, request.path);
      assert.equal(await status(request, DEVELOPMENT), nobody, request.path);
    }
  });

  test("the key counts in the query too, decoded, and nothing but the whole key", async (t) => {
    const env = { NODE_ENV: "production", SERVICE_CONSOLE_ACCESS_KEY: "a key+/=&1" };
    const { dispatch } = await startService(t, manifest(), { env });
    const get = async (path: string, headers = {}) => (await inject(dispatch, { path, headers })).status;
    assert.equal(await get(`/agents?limit=1&key=${encodeURIComponent("a key+/=&1")}`), 200);
    assert.equal(await get("/agents?ke%79=a%20key%2B%2F%3D%261"), 401, "its name is not looked for in disguise");
    for (const wrong of ["/agents?key=", "/agents?key=a", "/agents?monkey=a%20key%2B%2F%3D%261", "/agents?Key=x"])
      assert.equal(await get(wrong), 401, wrong);
    assert.equal(await get("/agents", { "x-console-access-key": "a key+/=&1" }), 200);
    assert.equal(await get("/agents", { "x-console-access-key": "A key+/=&1" }), 401);
  });

  test("authNext without SERVICE_CONSOLE_ACCESS_KEY in the environment: no key opens a route of the console", async (t) => {
    for (const SERVICE_CONSOLE_ACCESS_KEY of [undefined, ""]) {
      const { dispatch } = await startService(t, manifest(), {
        env: { NODE_ENV: "production", SERVICE_CONSOLE_ACCESS_KEY },
      });
      for (const path of ["/agents", "/agents?key=", "/agents?key=undefined"])
        for (const key of [null, "", "undefined"]) {
          const headers: Record<string, string> = key === null ? {} : { "x-console-access-key": key };
          assert.equal((await inject(dispatch, { path, headers })).status, 401);
        }
    }
  });

  test("outside production the development header opens every route, and only when it is true", async (t) => {
    const { dispatch } = await startService(t, manifest(), { env: DEVELOPING });
    for (const request of [TEXT, { path: "/agents" }, { path: "/hello" }]) {
      assert.equal((await inject(dispatch, { ...request, headers: DEVELOPMENT })).status, 200);
      for (const value of ["TRUE", "1", "", "true, true"])
        assert.equal((await inject(dispatch, { ...request, headers: { "x-service-dev": value } })).status, 401);
    }
    assert.equal((await inject(dispatch, { path: "/agents?dev=true" })).status, 401, "?dev=true is for sockets");
  });

  test("what no route answers is a user route before it is 404, and another method before it is 405", async (t) => {
    const { dispatch } = await startService(t, manifest(), { env: PRODUCTION });
    const reply = (method: string, path: string, headers = {}) => inject(dispatch, { method, path, headers });
    const spellings = [
      ["/nowhere", USER],
      ["//nowhere", USER],
      ["//agents", CONSOLE],
      ["/agents%2Fassistant", CONSOLE],
      ["/Agents", CONSOLE],
    ] as const;
    for (const [path, opens] of spellings) {
      for (const method of ["GET", "HEAD", "OPTIONS"])
        assert.equal((await reply(method, path)).status, 401, `${method} ${path}`);
      assert.equal((await reply("GET", path, opens)).status, 404, path);
      assert.equal((await reply("GET", path, opens === USER ? CONSOLE : USER)).status, 401, path);
    }
    assert.equal((await reply("DELETE", "/hello")).status, 401);
    const other = await reply("DELETE", "/hello", USER);
    assert.deepEqual([other.status, other.headers.allow], [405, "GET, HEAD, OPTIONS"]);
    assert.equal((await reply("HEAD", "/agents")).status, 401);
    assert.equal((await reply("HEAD", "/agents", CONSOLE)).status, 200);
  });

  test("a preflight is answered before access is looked at, and a 401 carries the CORS headers", async (t) => {
    const { dispatch } = await startService(t, manifest(), { env: PRODUCTION });
    const origin = { origin: "https://app.example" };
    const asked = {
      ...origin,
      "access-control-request-method": "POST",
      "access-control-request-headers": "authorization",
    };
    const preflight = await inject(dispatch, { method: "OPTIONS", path: TEXT.path, headers: asked });
    assert.equal(preflight.status, 204);
    assert.equal(preflight.headers["access-control-allow-headers"], "authorization");
    for (const path of ["/hello", "/agents", "/nowhere"]) {
      const refused = await inject(dispatch, { path, headers: origin });
      assert.deepEqual([refused.status, refused.headers["access-control-allow-origin"]], [401, "*"], path);
    }
  });

  test("a pattern with a literal for a parameter opens that path alone, however it is written", async (t) => {
    const { dispatch } = await startService(t, manifest({ publicRoutes: ["POST /agents/assistant/text"] }), {
      env: PRODUCTION,
    });
    const status = async (path: string) => (await inject(dispatch, { ...TEXT, path })).status;
    assert.equal(await status("/agents/assistant/text"), 200);
    assert.equal(await status("/agents/%61ssistant/text"), 200);
    for (const path of [
      "/agents/other/text",
      "/agents/assistant%2F/text",
      "/agents/Assistant/text",
      "/agents/%ZZ/text",
    ])
      assert.equal(await status(path), 401, path);
    assert.equal(await status("/agents/assistant/chat"), 401);
  });

  test("routes that the provider opens are open; nobody looks at the token there", async (t) => {
    const provider = { ...PROVIDER, publicRoutes: ["GET /hello"] };
    const { dispatch } = await startService(t, manifest({ provider }), { env: PRODUCTION });
    for (const authorization of ["", "Bearer nonsense"])
      assert.equal((await inject(dispatch, { path: "/hello", headers: { authorization } })).status, 200);
  });

  test("a refusal comes before the body is looked at", async (t) => {
    const { dispatch } = await startService(t, manifest(), { env: PRODUCTION });
    for (const body of ["{", "", '{"input":1}', "x".repeat(100)]) {
      const reply = await inject(dispatch, { ...TEXT, body, headers: { "content-type": "text/plain" } });
      assert.equal(reply.status, 401);
    }
  });
});

describe("a 401 of any route", () => {
  const refused = async (env: object, path: string, headers = {}, t: Loose, auth = {}) => {
    const { dispatch, log } = await startService(t, manifest(auth), { env: { ...env } });
    const reply = await inject(dispatch, { path, headers });
    assert.equal(reply.status, 401);
    assert.equal(reply.headers["x-error-code"], "unauthorized");
    const { success, error, ...rest } = reply.json() as Loose;
    assert.deepEqual([success, rest], [false, {}]);
    return { error: error as string, challenge: reply.headers["www-authenticate"], log: JSON.stringify(log) };
  };

  test("a 401 says how to send a token, or the key, and mentions the development header outside production only", async (t) => {
    const user = await refused(PRODUCTION, "/hello", {}, t);
    assert.equal(user.error, "authentication required: send a user's token in the header Authorization: Bearer TOKEN");
    assert.equal(user.challenge, 'Bearer realm="penstock"');
    const console = await refused(PRODUCTION, "/agents", {}, t);
    assert.equal(
      console.error,
      "console access required: send the console's key (SERVICE_CONSOLE_ACCESS_KEY) in the header x-console-access-key, or as ?key=KEY",
    );
    assert.equal(console.challenge, 'ConsoleKey realm="penstock"');
    for (const path of ["/hello", "/agents"])
      assert.match((await refused(DEVELOPING, path, {}, t)).error, /x-service-dev: true is enough$/);
  });

  test("a 401 tells a wrong credential from none, and neither the reply nor the log repeats it", async (t) => {
    const token = await refused(PRODUCTION, "/hello", { authorization: "Bearer wrong-token-1234" }, t);
    assert.match(token.error, /^the token is not valid or has expired: send/);
    assert.equal(token.challenge, 'Bearer realm="penstock", error="invalid_token"');
    const header = await refused(PRODUCTION, "/agents", { "x-console-access-key": "wrong-key-1234" }, t);
    assert.match(header.error, /^the console's key is wrong: send/);
    const query = await refused(PRODUCTION, "/agents?key=wrong-key-1234", {}, t);
    assert.equal(query.error, header.error);
    for (const { error, log } of [token, header, query])
      assert.doesNotMatch(error + log, /wrong-|console-key-0123456789|token-of-ada/);
    const scheme = await refused(PRODUCTION, "/hello", { authorization: `Basic ${TOKEN}` }, t);
    assert.match(scheme.error, /^authentication required/);
  });

  test("a refusal names both ways to show credentials where legacy takes both", async (t) => {
    const both = await refused(PRODUCTION, "/observability/x", {}, t, { mode: "legacy" });
    assert.match(both.error, /Bearer TOKEN, or send the console's key/);
    assert.equal(both.challenge, 'Bearer realm="penstock", ConsoleKey realm="penstock"');
  });
});

test("every route under legacy: lists are public, execution needs a token, observability the key or a token, the rest defaultPrivate", async (t) => {
  const expected = [
    ["/agents", 200, 200, 200],
    ["/hello", 200, 200, 200],
    ["/api/memory/conversations/x", 401, 404, 401],
    ["/observability/x", 401, 404, 404],
    ["/nowhere", 404, 404, 404],
  ] as const;
  const open = await startService(t, manifest({ mode: "legacy" }, { memory: { default: {} } }), { env: PRODUCTION });
  const closed = await startService(t, manifest({ mode: "legacy", defaultPrivate: true }), { env: PRODUCTION });
  const statuses = async ({ dispatch }: typeof open, path: string) => {
    const replies = [{}, USER, CONSOLE].map((headers) => inject(dispatch, { path, headers: { ...headers } }));
    return (await Promise.all(replies)).map(({ status }) => status);
  };
  for (const [path, ...wanted] of expected) assert.deepEqual(await statuses(open, path), wanted, path);
  assert.deepEqual(await statuses(closed, "/agents"), [200, 200, 200]);
  assert.deepEqual(await statuses(closed, "/hello"), [401, 200, 401]);
  assert.deepEqual(await statuses(closed, "/nowhere"), [401, 404, 401]);
});

test("a custom route sees the user of the token; without authentication nobody looks at one", async (t) => {
  const routes = { routes: [{ use: "who" }] };
  const secured = await startService(t, manifest({}, routes), { env: PRODUCTION, plugins: [FIXTURES] });
  const seen = await inject(secured.dispatch, { path: "/who", headers: USER });
  assert.deepEqual((seen.json() as Loose).data, { user: { id: "ada" } });
  const open = await startService(t, manifest({ mode: "none" }, routes), { env: PRODUCTION, plugins: [FIXTURES] });
  const unseen = await inject(open.dispatch, { path: "/who", headers: USER });
  assert.deepEqual((unseen.json() as Loose).data, { user: null });
});

test("a key in the address of /ui goes with the explorer's calls to this server, and to no other", async (t) => {
  const { dispatch } = await startService(t, manifest(), { env: PRODUCTION });
  const page = await inject(dispatch, { path: `/ui?key=${KEY}` });
  assert.equal(page.status, 200);
  const scripts = [...page.text().matchAll(/(?:src|href)="\.(\/ui\/[^"]+)"/g)].map((match) => match[1]!);
  assert.ok(scripts.length > 2);
  for (const path of scripts) assert.equal((await inject(dispatch, { path })).status, 200, path);
  const sent = (search: string, url: string) => {
    const location = { href: `https://desk.example/ui${search}`, origin: "https://desk.example", search };
    const start = { settings: null as Loose };
    const SwaggerUIBundle = (settings: Loose) => {
      start.settings = settings;
    };
    const document = { documentElement: { classList: { toggle() {} } } };
    const globals = { location, document, SwaggerUIBundle, URL, URLSearchParams, matchMedia: () => ({}) };
    runInNewContext(script, globals);
    return start.settings.requestInterceptor({ url, headers: {} }).headers;
  };
  const script = (await inject(dispatch, { path: "/ui/explorer.js" })).text();
  assert.deepEqual({ ...sent("?key=a%2Bb", "https://desk.example/doc") }, { "x-console-access-key": "a+b" });
  assert.deepEqual({ ...sent("?key=a%2Bb", "https://other.example/doc") }, {});
  assert.deepEqual({ ...sent("", "https://desk.example/doc") }, {});
});

test("/doc says which credentials a route needs, and the landing page sends a token", async (t) => {
  const { dispatch } = await startService(t, manifest({ publicRoutes: ["/hello", "POST /agents/free/text"] }), {
    env: PRODUCTION,
  });
  const document = (await inject(dispatch, { path: "/doc", headers: CONSOLE })).json() as Loose;
  const security = (path: string, method = "get") => document.paths[path][method].security;
  assert.deepEqual(Object.keys(document.components.securitySchemes), ["userToken", "consoleKey", "consoleKeyInQuery"]);
  assert.deepEqual(security("/hello"), []);
  assert.deepEqual(security("/agents"), [{ consoleKey: [] }, { consoleKeyInQuery: [] }]);
  assert.deepEqual(security("/agents/{id}/chat", "post"), [{ userToken: [] }]);
  assert.deepEqual(security("/agents/{id}/text", "post"), [{ userToken: [] }, {}]);
  assert.ok(document.paths["/agents"].get.responses["401"]);
  assert.ok(!document.paths["/hello"].get.responses["401"]);
  const page = await inject(dispatch, { path: "/", headers: CONSOLE });
  assert.match(page.text(), /authorization: Bearer/);
});
