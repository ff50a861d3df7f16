/** What browsers send for any page without asking the service first: nothing is done for a page of another site. */
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { ROUTES } from "../../core/api/routes/index.ts";
import { FIXTURES } from "../support/fixtures.ts";
import { inject } from "../support/inject.ts";
import { pluginFolder } from "../support/plugin-folder.ts";
import type { Loose } from "../support/served-upstream.ts";
import { manifestWith, startService } from "../support/service.ts";
import { TRANSPORTS } from "../support/transports.ts";

const EVIL = "https://evil.example";
const APP = "https://app.example";
const PLUGINS = {
  "routes/wipe.mjs": `export default { kind: "route", method: "DELETE", path: "/wipe/:id", handle: () => 1 };`,
  "routes/patch.mjs": `export default { kind: "route", method: "PATCH", path: "/patch", handle: () => 1 };`,
  "routes/put.mjs": `export default { kind: "route", method: "PUT", path: "/put", handle: () => 1 };`,
  "routes/send.mjs": `export default { kind: "route", method: "POST", path: "/send", handle: () => 1 };`,
  "origins/odd.mjs": `export default { kind: "origin", origin: (origin) => (origin.endsWith(".odd.example") ? origin : undefined) };`,
};
const CUSTOM = ["DELETE /wipe/1", "PATCH /patch", "PUT /put", "POST /send"];
const UNSAFE = ROUTES.filter(({ method }) => method !== "GET").map(
  ({ method, path }) => `${method} ${path.replace(/:\w+/g, "x")}`,
);
const KEYS = { publicKey: "pk", secretKey: "sk" };

async function serve(t: TestContext, server: object = {}, rest: object = {}) {
  const routes = ["wipe", "patch", "put", "send"].map((use) => ({ use }));
  const plugins = [pluginFolder(t, PLUGINS), FIXTURES];
  const manifest = manifestWith({}, { server, routes, tools: { sum: { use: "add" } }, ...rest });
  const service = await startService(t, manifest, { plugins });
  const send = async (line: string, headers: Record<string, string>, body?: string | object) => {
    const [method, path] = line.split(" ") as [string, string];
    const { status, text } = await inject(service.dispatch, { method, path, headers, body });
    const failure = status >= 400 ? (JSON.parse(text()) as Loose).error : "";
    // Below `/v1` it is an object, as OpenAI's clients expect.
    const error = typeof failure === "string" ? failure : ((failure as Loose).message as string);
    return { status, error };
  };
  return { service, send, file: join(service.booted.loaded.folder, ".env") };
}

test("every POST, PUT, PATCH and DELETE from a page of another site that is not marked as JSON is 403, without a body too", async (t) => {
  const { send } = await serve(t);
  for (const line of [...UNSAFE, ...CUSTOM, "POST /nowhere", "POST /agents", "DELETE /nowhere"]) {
    for (const origin of [
      EVIL,
      "null",
      "http://localhost:9",
      "not a url",
      "http://evil.example:3141",
      "http://localhost.",
    ]) {
      for (const [type, body] of [
        [undefined, undefined],
        [undefined, "{}"],
        ["text/plain", '{"input":1}'],
        ["text/plain;charset=UTF-8", "{}"],
        ["application/x-www-form-urlencoded", "a=b"],
        ["multipart/form-data; boundary=x", "--x--"],
        ["text/plain; x=application/json", "{}"],
        ["text/json", "{}"],
        ["text/plain, application/json", "{}"],
        ["application/jsonx", "{}"],
      ]) {
        const headers = {
          host: "localhost:3141",
          origin: origin!,
          ...(type !== undefined && { "content-type": type }),
        };
        const { status, error } = await send(line, headers, body);
        assert.equal(status, 403, `${line} from ${origin} as ${type}`);
        assert.match(error, /application\/json|server\.cors\.origin/, line);
      }
    }
  }
});

test("a page of another site whose request is marked as JSON was asked by its browser and is let through, but for /setup-observability and /updates", async (t) => {
  const { send, file } = await serve(t, {}, { updates: { install: true } });
  const headers = { host: "localhost:3141", origin: EVIL, "content-type": "application/json" };
  assert.equal((await send("POST /tools/sum/execute", headers, { input: { a: 1, b: 2 } })).status, 200);
  assert.equal(
    (await send("DELETE /wipe/1", { ...headers, "content-type": "Application/JSON; charset=utf-8" })).status,
    200,
  );
  assert.equal(
    (await send("POST /send", { ...headers, "content-type": "application/vnd.api+json" }, "{}")).status,
    200,
  );
  for (const [line, body] of [
    ["POST /setup-observability", KEYS],
    ["POST /updates", {}],
    ["POST /updates/tiny", undefined],
    ["GET /updates", undefined],
    ["POST /reload", undefined],
  ] as const) {
    for (const origin of [EVIL, "null", "http://localhost:9", "https://localhost.evil.example"]) {
      const { status, error } = await send(line, { ...headers, origin }, body);
      assert.equal(status, 403, `${line} from ${origin}`);
      assert.match(error, /server\.cors\.origin/);
    }
  }
  assert.ok(!existsSync(file));
});

test("pages of the service itself, pages that server.cors.origin names, and programs are refused nothing", async (t) => {
  const server = { cors: { origin: [APP] }, publicUrl: "https://desk.example/base", allowedHosts: ["lan.example"] };
  const { send } = await serve(t, server);
  for (const [host, origin] of [
    ["localhost:3141", undefined],
    ["localhost:3141", "http://localhost:3141"],
    ["LOCALHOST:3141", "http://localhost:3141"],
    ["127.0.0.1:3141", "http://127.0.0.1:3141"],
    ["[::1]:3141", "http://[::1]:3141"],
    ["app.localhost:3141", "http://app.localhost:3141"],
    ["localhost", "https://localhost"],
    ["lan.example:3141", "http://lan.example:3141"],
    ["localhost:3141", "https://desk.example"],
    ["desk.example", "https://desk.example"],
    ["localhost:3141", APP],
  ] as const) {
    const headers = { host, ...(origin !== undefined && { origin }) };
    const where = `${origin} at ${host}`;
    assert.equal((await send("POST /tools/sum/execute", headers, '{"input":{"a":1,"b":2}}')).status, 200, where);
    assert.equal((await send("DELETE /wipe/1", headers)).status, 200, where);
    assert.equal((await send("POST /setup-observability", headers, KEYS)).status, 200, where);
  }
  for (const origin of ["https://other.example", "http://desk.example:1", "http://app.example", `${APP}.evil.example`])
    assert.equal(
      (await send("POST /setup-observability", { host: "localhost:3141", origin }, KEYS)).status,
      403,
      origin,
    );
});

test('server.cors.origin.use: an origin plugin names origins, one by one; listing "*" among others names none', async (t) => {
  const odd = await serve(t, { cors: { origin: { use: "odd" } } });
  const host = "localhost:3141";
  assert.equal(
    (await odd.send("POST /setup-observability", { host, origin: "https://a.odd.example" }, KEYS)).status,
    200,
  );
  assert.equal((await odd.send("POST /setup-observability", { host, origin: EVIL }, KEYS)).status, 403);
  const star = await serve(t, { cors: { origin: ["*", APP] } });
  assert.equal((await star.send("POST /setup-observability", { host, origin: EVIL }, KEYS)).status, 403);
  assert.equal((await star.send("POST /setup-observability", { host, origin: EVIL }, "{}")).status, 403);
});

test("every POST: behind a trusted proxy the service's own origin is the scheme and the host that the proxy was asked for", async (t) => {
  const server = { trustedProxies: ["127.0.0.0/8"], allowedHosts: ["desk.example"] };
  const { send } = await serve(t, server);
  const from = async (origin: string, host: string, scheme: string, inner = "penstock") => {
    const headers = {
      host: inner,
      origin,
      "x-forwarded-host": host,
      "x-forwarded-proto": scheme,
      "x-forwarded-for": "::1",
    };
    return (await send("POST /setup-observability", headers, KEYS)).status;
  };
  assert.equal(await from("https://desk.example", "desk.example", "https"), 200);
  assert.equal(await from("https://desk.example:8443", "desk.example:8443", "https"), 200);
  assert.equal(await from("https://desk.example", "desk.example:443", "https"), 200);
  assert.equal(await from("http://localhost:8080", "localhost:8080", "http"), 200);
  assert.equal(await from("http://desk.example", "desk.example", "https"), 403, "the page came without TLS");
  assert.equal(await from("https://desk.example:444", "desk.example", "https"), 403);
  assert.equal(await from("http://localhost:3141", "desk.example", "https", "localhost:3141"), 403);
  assert.equal(await from(EVIL, "desk.example", "https"), 403);
});

for (const transport of TRANSPORTS) {
  test(`over ${transport}, a POST that a browser sends without asking runs no tool and writes no file`, async (t) => {
    const { service, file } = await serve(t, { transport });
    const statusOf = async (path: string, headers: Record<string, string>, body: string) => {
      const reply = await fetch(service.url + path, { method: "POST", headers, body: new TextEncoder().encode(body) });
      await reply.arrayBuffer();
      return [reply.status, reply.headers.get("access-control-allow-origin")];
    };
    for (const type of [null, "text/plain"]) {
      for (const [path, body] of [
        ["/setup-observability", JSON.stringify(KEYS)],
        ["/tools/sum/execute", '{"input":{"a":1,"b":2}}'],
        ["/workflows/none/executions/x/cancel", ""],
      ] as const)
        assert.deepEqual(
          await statusOf(path, { origin: EVIL, ...(type !== null && { "content-type": type }) }, body),
          [403, "*"],
          path,
        );
    }
    assert.ok(!existsSync(file));
    assert.deepEqual(await statusOf("/tools/sum/execute", { origin: service.url }, '{"input":{"a":1,"b":2}}'), [
      200,
      "*",
    ]);
  });
}
