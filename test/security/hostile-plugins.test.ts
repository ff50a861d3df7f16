/** Plugins that give or throw what nobody expects: the caller gets the envelope, the log a line, the process goes on. */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { pluginFolder } from "../support/plugin-folder.ts";
import { dataOf, errorOf } from "../support/served-upstream.ts";
import { manifestWith, startService } from "../support/service.ts";
import { openSocket } from "../support/sockets.ts";
import { TRANSPORTS } from "../support/transports.ts";

const NASTY = `
const nasty = (name) => Object.defineProperty(new Error("x"), name, { get() { throw new Error("looked at"); } });
const circle = {};
circle.self = circle;
const GIVEN = {
  bigint: () => ({ a: 1n }), circle: () => circle, function: () => () => 1, symbol: () => Symbol("x"),
  getter: () => ({ get x() { throw new Error("looked at"); } }), toJSON: () => ({ toJSON() { throw new Error("looked at"); } }),
  later: async () => 1n,
};
const THROWN = {
  message: () => nasty("message"), code: () => nasty("code"), cause: () => nasty("cause"), stack: () => nasty("stack"),
  proxy: () => new Proxy(new Error("x"), { get() { throw new Error("looked at"); } }), null: () => null,
  revoked: () => { const { proxy, revoke } = Proxy.revocable({}, {}); revoke(); return proxy; },
  prototype: () => new Proxy(new Error("x"), { getPrototypeOf() { throw new Error("looked at"); } }),
  inherited: () => Object.create(new Proxy(new Error("x"), { getPrototypeOf() { throw new Error("looked at"); } })),
  deep: () => new Error("x", { cause: THROWN.prototype() }),
  bare: () => Object.create(null), symbol: () => Symbol("x"), undefined: () => undefined, function: () => () => 1,
  name: () => Object.assign(new Error("x"), { message: Symbol("x"), name: Symbol("x") }),
};
const later = (settle) => { const then = (done, failed) => void setImmediate(() => settle(done, failed)); return { then }; };
export const THENABLES = {
  value: () => later((done) => done({ a: 1 })),
  callable: () => Object.assign(() => 1, later((done) => done({ a: 1 }))),
  nested: () => later((done) => done(later((again) => again({ a: 1 })))),
  fails: () => later((_done, failed) => failed(new Error("later"))),
  hostile: () => later((_done, failed) => failed(THROWN.prototype())),
  throws: () => ({ then() { throw THROWN.revoked(); } }),
  getter: () => ({ get then() { throw THROWN.prototype(); } }),
};
export const give = (how) => GIVEN[how]();
export const fail = (how) => { throw THROWN[how](); };
`;
const TOOLS = {
  "tools/nasty/errors.mjs": NASTY,
  "tools/give.mjs": `import { give } from "../tools/nasty/errors.mjs";
    export default { kind: "tool", name: "give", execute: ({ how }) => give(how) };`,
  "tools/fail.mjs": `import { fail } from "../tools/nasty/errors.mjs";
    export default { kind: "tool", name: "fail", execute: ({ how, later }) => later ? Promise.resolve().then(() => fail(how)) : fail(how) };`,
  "tools/then.mjs": `export default { kind: "tool", name: "then", execute: () => ({ get then() { throw new Error("looked at"); } }) };`,
  "routes/fail.mjs": `import { fail } from "../tools/nasty/errors.mjs";
    export default { kind: "route", name: "fail", method: "GET", path: "/fail/:how", handle: ({ params }) => fail(params.how) };`,
  "routes/headers.mjs": `import { ServiceError } from "#plugin";
    export default { kind: "route", name: "headers", method: "GET", path: "/headers/:how", handle: ({ params: { how } }) => {
      const error = new ServiceError(how === "kind" ? "teapot" : "conflict", "taken", { headers: how === "kind" ? {} : { "x-a": "a\\r\\nx-b: c" } });
      if (how === "now") throw error;
      return Promise.reject(error); } };`,
  "origins/nasty.mjs": `const SAYS = { throws: () => { throw new Error("x"); }, splits: () => "http://a\\r\\nx-b: c", number: () => 5, later: async (o) => o, null: () => null };
    export default { kind: "origin", name: "nasty", origin: (origin) => (SAYS[origin.slice(7)] ?? ((o) => o))(origin) };`,
  "tools/thenable.mjs": `import { THENABLES } from "../tools/nasty/errors.mjs";
    export default { kind: "tool", name: "thenable", execute: ({ how }) => THENABLES[how]() };`,
  "routes/thenable.mjs": `import { THENABLES } from "../tools/nasty/errors.mjs";
    export default { kind: "route", name: "thenable", method: "GET", path: "/thenable/:how", handle: ({ params }) => THENABLES[params.how]() };`,
  "sockets/nasty.mjs": `import { fail, THENABLES } from "../tools/nasty/errors.mjs";
    const act = (how) => (how in THENABLES ? THENABLES[how]() : fail(how));
    export default { kind: "socket", name: "nasty", path: "/ws/nasty/:how",
      message: (peer, { wait }) => wait ? new Promise((done) => setImmediate(done)).then(() => act(peer.params.how)) : act(peer.params.how) };`,
  "steps/nasty.mjs": `import { fail, THENABLES } from "../tools/nasty/errors.mjs";
    export default { kind: "step", name: "nasty", execute: ({ data: { how, later } }) => {
      if (how in THENABLES) return THENABLES[how]();
      return later ? Promise.resolve().then(() => fail(how)) : fail(how); } };`,
  "providers/nasty.mjs": `import { fail } from "../tools/nasty/errors.mjs";
    const doStream = async ({ prompt }) => {
      const how = prompt.at(-1).content[0].text;
      if (!how.startsWith("part ")) fail(how);
      const error = (() => { try { fail(how.slice(5)); } catch (thrown) { return thrown; } })();
      return { stream: new ReadableStream({ start(to) { to.enqueue({ type: "error", error }); to.close(); } }) };
    };
    export default { kind: "provider", name: "nasty", create: () => ({ languageModel: (modelId) =>
      ({ specificationVersion: "v3", provider: "nasty", modelId, supportedUrls: {}, doGenerate: doStream, doStream }) }) };`,
  "auth/nasty.mjs": `import { fail } from "../tools/nasty/errors.mjs";
    export default { kind: "auth", name: "nasty", create: () => ({ type: "nasty", verifyToken: (how) => fail(how) }) };`,
  "routes/give.mjs": `import { give } from "../tools/nasty/errors.mjs";
    export default { kind: "route", name: "give", method: "GET", path: "/give/:how", handle: ({ params }) => give(params.how) };`,
};

function serve(t: TestContext, transport = "auto", more: object = {}) {
  const names = ["give", "fail", "then", "thenable"];
  const tools = Object.fromEntries(names.map((use) => [use, { use }]));
  const routes = ["give", "fail", "headers", "thenable", "nasty"].map((use) => ({ use }));
  const server = { transport, cors: { origin: { use: "nasty" } } };
  const workflows = { nasty: { steps: [{ id: "it", andThen: { use: "nasty" } }] } };
  const providers = { nasty: { use: "nasty", retries: 0 } };
  const agents = { nasty: { model: "nasty/x", instructions: "x" } };
  const manifest = manifestWith({}, { server, tools, routes, workflows, providers, agents, ...more });
  return startService(t, manifest, { plugins: [pluginFolder(t, TOOLS)] });
}

for (const how of ["bigint", "circle", "function", "symbol", "getter", "toJSON", "later"]) {
  test(`POST /tools/:name/execute: a result that is no JSON (${how}) is the tool's failure, and says so`, async (t) => {
    const service = await serve(t);
    const reply = await service.post("/tools/give/execute", { input: { how } });
    assert.equal(reply.headers.get("x-error-code"), "tool_failed");
    assert.deepEqual(await errorOf(reply), { status: 500, error: 'tool "give" returned something that is not JSON' });
  });
}

const THROWN =
  "message code cause stack proxy null revoked prototype inherited deep bare symbol undefined function name";

for (const how of THROWN.split(" ")) {
  test(`POST /tools/:name/execute and a custom route: an error whose ${how} cannot be looked at is answered with 500`, async (t) => {
    const service = await serve(t);
    for (const later of [false, true]) {
      const reply = await service.post("/tools/fail/execute", { input: { how, later } });
      assert.equal(reply.headers.get("x-error-code"), "tool_failed");
      assert.equal((await errorOf(reply)).status, 500);
    }
    const answer = await errorOf(service.get(`/fail/${how}`, { "x-request-id": "r-1" }));
    assert.deepEqual(answer, { status: 500, error: "internal error (request id r-1)" });
    assert.ok(service.log.some(({ level, requestId }) => level === "error" && requestId === "r-1"));
  });
}

test("POST /tools/:name/execute: a result whose then cannot be looked at is the tool's failure", async (t) => {
  const service = await serve(t);
  const answer = await errorOf(service.post("/tools/then/execute", { input: {} }));
  assert.deepEqual(answer, { status: 500, error: "looked at" });
});

test("a custom route that gives what is no JSON is answered with 500, and the next request is served", async (t) => {
  const service = await serve(t);
  for (const how of ["bigint", "circle", "getter", "toJSON", "later"])
    assert.equal((await errorOf(service.get(`/give/${how}`))).status, 500);
  assert.equal((await dataOf(service.get("/agents"))).length, 1);
});

for (const how of ["value", "callable", "nested"]) {
  test(`GET of a custom route, POST /tools/:name/execute and a workflow's step: a thenable (${how}) is waited for like a promise`, async (t) => {
    const service = await serve(t);
    assert.deepEqual(await dataOf(service.get(`/thenable/${how}`)), { a: 1 });
    assert.deepEqual((await dataOf(service.post("/tools/thenable/execute", { input: { how } }))).result, { a: 1 });
    const execution = await dataOf(service.post("/workflows/nasty/execute", { input: { how } }));
    assert.deepEqual([execution.status, execution.result], ["completed", { a: 1 }]);
  });
}

for (const how of ["fails", "hostile", "throws", "getter"]) {
  test(`GET of a custom route, POST /tools/:name/execute and a workflow's step: a thenable that fails (${how}) is a failure`, async (t) => {
    const service = await serve(t);
    assert.equal((await errorOf(service.get(`/thenable/${how}`))).status, 500);
    const reply = await service.post("/tools/thenable/execute", { input: { how } });
    assert.equal(reply.headers.get("x-error-code"), "tool_failed");
    const execution = await service.post("/workflows/nasty/execute", { input: { how } });
    assert.equal(execution.headers.get("x-error-code"), "step_failed");
  });
}

for (const how of THROWN.split(" ")) {
  test(`POST /workflows/:id/execute and POST /agents/:id/text: what a step or a provider throws (${how}) is its failure`, async (t) => {
    const service = await serve(t);
    for (const later of [false, true]) {
      const reply = await service.post("/workflows/nasty/execute", { input: { how, later } });
      assert.equal(reply.headers.get("x-error-code"), "step_failed");
    }
    for (const input of [how, `part ${how}`]) {
      const reply = await service.post("/agents/nasty/text", { input });
      assert.equal(reply.headers.get("x-error-code"), "provider_failed");
      assert.equal((await errorOf(reply)).status, 500);
    }
  });

  test(`POST /tools/:name/execute: a token on which an auth plugin throws (${how}) is refused with 401`, async (t) => {
    const auth = { mode: "authNext", provider: { use: "nasty" } };
    const service = await serve(t, "auto", { auth });
    const reply = await service.post("/tools/give/execute", { input: {} }, { authorization: `Bearer ${how}` });
    assert.equal(reply.status, 401);
  });
}

for (const transport of TRANSPORTS) {
  test(`a custom socket whose handler throws, or gives a thenable that fails, is closed with 1011 whatever it is, over ${transport}`, async (t) => {
    const service = await serve(t, transport);
    for (const how of [...THROWN.split(" "), "fails", "hostile", "throws", "getter"]) {
      for (const wait of [false, true]) {
        const socket = await openSocket(`${service.url}/ws/nasty/${how}`);
        socket.send({ wait });
        assert.equal((await socket.closed).code, 1011, how);
      }
    }
  });

  test(`an origin plugin that throws or gives no origin refuses the origin, over ${transport}`, async (t) => {
    const service = await serve(t, transport);
    const allowed = async (path: string, origin: string, method = "GET") => {
      const reply = await fetch(service.url + path, { method, headers: { origin } });
      assert.equal(reply.headers.get("x-b"), null);
      return reply.headers.get("access-control-allow-origin");
    };
    for (const how of ["throws", "splits", "number", "later", "null"]) {
      for (const path of ["/agents", "/nothing"]) assert.equal(await allowed(path, `http://${how}`), null, how);
      assert.equal(await allowed("/agents", `http://${how}`, "OPTIONS"), null, how);
    }
    assert.equal(await allowed("/agents", "http://other"), "http://other");
  });

  test(`a custom route whose error has a header that HTTP does not allow, or an unknown kind, is answered with 500, over ${transport}`, async (t) => {
    const service = await serve(t, transport);
    for (const how of ["now", "later", "kind"]) {
      const answer = await errorOf(service.get(`/headers/${how}`, { "x-request-id": "r-2" }));
      assert.deepEqual(answer, { status: 500, error: "internal error (request id r-2)" }, how);
    }
  });
}
