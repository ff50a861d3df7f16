/** Plugins that give or throw what nobody expects: the caller gets the envelope, the log a line, the process goes on. */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { pluginFolder } from "../support/plugin-folder.ts";
import { dataOf, errorOf } from "../support/served-upstream.ts";
import { manifestWith, startService } from "../support/service.ts";
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
  "routes/give.mjs": `import { give } from "../tools/nasty/errors.mjs";
    export default { kind: "route", name: "give", method: "GET", path: "/give/:how", handle: ({ params }) => give(params.how) };`,
};

function serve(t: TestContext, transport = "auto") {
  const tools = { give: { use: "give" }, fail: { use: "fail" }, then: { use: "then" } };
  const routes = [{ use: "give" }, { use: "fail" }, { use: "headers" }];
  const server = { transport, cors: { origin: { use: "nasty" } } };
  return startService(t, manifestWith({}, { server, tools, routes }), { plugins: [pluginFolder(t, TOOLS)] });
}

for (const how of ["bigint", "circle", "function", "symbol", "getter", "toJSON", "later"]) {
  test(`POST /tools/:name/execute: a result that is no JSON (${how}) is the tool's failure, and says so`, async (t) => {
    const service = await serve(t);
    const reply = await service.post("/tools/give/execute", { input: { how } });
    assert.equal(reply.headers.get("x-error-code"), "tool_failed");
    assert.deepEqual(await errorOf(reply), { status: 500, error: 'tool "give" gave something that is not JSON' });
  });
}

for (const how of ["message", "code", "cause", "stack", "proxy", "null"]) {
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

for (const transport of TRANSPORTS) {
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
