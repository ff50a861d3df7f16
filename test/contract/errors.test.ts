/** Contract, "Errors" and "Limits", on every network transport: statuses, the envelope, headers, bodies. */
import assert from "node:assert/strict";
import { connect } from "node:net";
import { describe, test } from "node:test";
import { manifestWith, startService } from "../support/service.ts";
import { TRANSPORTS } from "../support/transports.ts";

interface Case {
  title: string;
  method?: string;
  path: string;
  headers?: Record<string, string>;
  body?: string;
  status: number;
  code: string;
  error: RegExp;
}

const JSON_TYPE = { "content-type": "application/json" };
const TEXT = "/agents/assistant/text";

const CASES: Case[] = [
  {
    title: "an unknown path is 404",
    path: "/nothing/here",
    status: 404,
    code: "not_found",
    error: /no route for \/nothing\/here/,
  },
  {
    title: "a path with two trailing slashes is 404",
    path: "/agents//",
    status: 404,
    code: "not_found",
    error: /no route/,
  },
  {
    title: "GET /agents/:id of an unknown agent is 404",
    path: "/agents/nobody",
    status: 404,
    code: "not_found",
    error: /agent "nobody" does not exist/,
  },
  {
    title: "a parameter with a broken escape is 400",
    path: "/agents/%zz",
    status: 400,
    code: "invalid_input",
    error: /id in the path is not valid percent-encoding/,
  },
  {
    title: "an encoded slash stays inside the parameter",
    path: "/agents/a%2Fb",
    status: 404,
    code: "not_found",
    error: /agent "a\/b" does not exist/,
  },
  {
    title: "a wrong method on a known path is 405",
    method: "DELETE",
    path: "/agents",
    status: 405,
    code: "method_not_allowed",
    error: /allowed: GET, HEAD, OPTIONS/,
  },
  {
    title: "a body that is not JSON is 400",
    method: "POST",
    path: TEXT,
    headers: JSON_TYPE,
    body: "{oops",
    status: 400,
    code: "invalid_input",
    error: /body is not valid JSON/,
  },
  {
    title: "an empty body is 400",
    method: "POST",
    path: TEXT,
    headers: JSON_TYPE,
    body: "",
    status: 400,
    code: "invalid_input",
    error: /body is required/,
  },
  {
    title: "a body that is no object is 400",
    method: "POST",
    path: TEXT,
    headers: JSON_TYPE,
    body: "[1]",
    status: 400,
    code: "invalid_input",
    error: /body must be object/,
  },
  {
    title: "a body without its required field is 400 and names it",
    method: "POST",
    path: TEXT,
    headers: JSON_TYPE,
    body: "{}",
    status: 400,
    code: "invalid_input",
    error: /input is required/,
  },
  {
    title: "all problems of a body are joined by `; `",
    method: "POST",
    path: TEXT,
    headers: JSON_TYPE,
    body: '{"input":"x","options":{"temperature":3,"topP":-1}}',
    status: 400,
    code: "invalid_input",
    error: /options\.temperature must be <= 1; options\.topP must be >= 0/,
  },
  {
    title: "a body nested too deep is 400",
    method: "POST",
    path: TEXT,
    headers: JSON_TYPE,
    body: `{"input":${"[".repeat(500)}${"]".repeat(500)}}`,
    status: 400,
    code: "invalid_input",
    error: /nested deeper than 128/,
  },
  {
    title: "no body is 400, whatever its type would be",
    method: "POST",
    path: TEXT,
    headers: { "content-type": "text/plain" },
    body: "",
    status: 400,
    code: "invalid_input",
    error: /^body is required/,
  },
  {
    title: "a content type that is not JSON is 415",
    method: "POST",
    path: TEXT,
    headers: { "content-type": "text/plain" },
    body: '{"input":"x"}',
    status: 415,
    code: "unsupported_media_type",
    error: /must be application\/json, not text\/plain/,
  },
  {
    title: "a body over the limit is 413",
    method: "POST",
    path: TEXT,
    headers: JSON_TYPE,
    body: JSON.stringify({ input: "x".repeat(5000) }),
    status: 413,
    code: "too_large",
    error: /larger than 4096 bytes/,
  },
  {
    title: "POST /agents/:id/text of an unknown agent is 404",
    method: "POST",
    path: "/agents/nobody/text",
    headers: JSON_TYPE,
    body: '{"input":"x"}',
    status: 404,
    code: "not_found",
    error: /agent "nobody"/,
  },
  {
    title: "POST /tools/:name/execute of an unknown tool is 404",
    method: "POST",
    path: "/tools/nothing/execute",
    headers: JSON_TYPE,
    body: '{"input":{}}',
    status: 404,
    code: "not_found",
    error: /tool "nothing" does not exist/,
  },
  {
    title: "GET /agents/:id/history with a limit that is no number is 400",
    path: "/agents/assistant/history?limit=abc",
    status: 400,
    code: "invalid_input",
    error: /limit must be/,
  },
  {
    title: "GET /agents/:id/history with a limit over 100 is 400",
    path: "/agents/assistant/history?limit=101",
    status: 400,
    code: "invalid_input",
    error: /limit must be <= 100/,
  },
];

const manifest = (transport: string) => manifestWith({}, { server: { transport, limits: { body: "4KiB" } } });

for (const transport of TRANSPORTS) {
  describe(`every route over ${transport}`, () => {
    for (const { title, method = "GET", path, headers, body, status, code, error } of CASES) {
      test(`${title}, in the envelope`, async (t) => {
        const service = await startService(t, manifest(transport));
        const reply = await fetch(service.url + path, { method, headers, body });
        const payload = (await reply.json()) as { success: boolean; error: string };
        assert.equal(reply.status, status, payload.error);
        assert.match(payload.error, error);
        assert.deepEqual(Object.keys(payload), ["success", "error"]);
        assert.equal(payload.success, false);
        assert.equal(reply.headers.get("x-error-code"), code);
        assert.match(reply.headers.get("x-request-id") ?? "", /^[a-z0-9-]+$/);
        assert.match(reply.headers.get("content-type") ?? "", /^application\/json/);
      });
    }

    test("a path with another method is 405, and Allow names its methods", async (t) => {
      const service = await startService(t, manifest(transport));
      const reply = await fetch(`${service.url}${TEXT}`, { method: "PUT" });
      assert.equal(reply.headers.get("allow"), "OPTIONS, POST");
    });

    test("HEAD mirrors GET: the same status and headers, no body", async (t) => {
      const service = await startService(t, manifest(transport));
      const get = await fetch(`${service.url}/agents`);
      const head = await fetch(`${service.url}/agents`, { method: "HEAD" });
      assert.equal(head.status, 200);
      assert.equal(head.headers.get("content-length"), String(Buffer.byteLength(await get.text())));
      assert.equal(await head.text(), "");
    });

    test("x-request-id is the caller's when it is a sane token, and made otherwise", async (t) => {
      const service = await startService(t, manifest(transport));
      const sane = await service.get("/agents", { "x-request-id": "order-42" });
      assert.equal(sane.headers.get("x-request-id"), "order-42");
      const insane = await service.get("/agents", { "x-request-id": "two words" });
      assert.notEqual(insane.headers.get("x-request-id"), "two words");
      const again = await service.get("/agents");
      assert.notEqual(again.headers.get("x-request-id"), insane.headers.get("x-request-id"));
    });

    test("every reply carries the default CORS header, errors and preflights too", async (t) => {
      const service = await startService(t, manifest(transport));
      for (const path of ["/agents", "/nothing", "/agents/nobody"]) {
        const reply = await service.get(path, { origin: "https://shop.example" });
        assert.equal(reply.headers.get("access-control-allow-origin"), "*", path);
      }
      const preflight = await fetch(`${service.url}${TEXT}`, {
        method: "OPTIONS",
        headers: {
          origin: "https://shop.example",
          "access-control-request-method": "POST",
          "access-control-request-headers": "content-type",
        },
      });
      assert.equal(preflight.status, 204);
      assert.equal(preflight.headers.get("access-control-allow-methods"), "OPTIONS, POST");
      assert.equal(preflight.headers.get("access-control-allow-headers"), "content-type");
    });

    test("a body over the limit is refused while it arrives: the sender hears 413 before it has sent all", async (t) => {
      const service = await startService(t, manifest(transport));
      const heard = await new Promise<string>((resolve, reject) => {
        let text = "";
        const socket = connect(service.port, "127.0.0.1", () => {
          socket.write(
            `POST ${TEXT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100000000\r\n\r\n`,
          );
          socket.write("x".repeat(10_000));
        });
        socket.on("data", (chunk) => {
          text += chunk;
        });
        socket.on("close", () => resolve(text));
        socket.on("error", reject);
      });
      assert.match(heard, /^HTTP\/1\.1 413 /);
      assert.match(heard, /body is larger than 4096 bytes/);
    });

    test("unknown query parameters of any route are ignored", async (t) => {
      const service = await startService(t, manifest(transport));
      assert.equal((await service.get("/agents?colour=red")).status, 200);
      assert.equal((await service.get("/agents/assistant/history?colour=red&limit=5")).status, 200);
    });
  });
}

test("every route: one line a request is logged at debug, with the path but never the query", async (t) => {
  const service = await startService(t, manifest("node"));
  await (await service.get("/agents?key=hidden&token=hidden")).text();
  const line = service.log.find(({ msg }) => msg === "request");
  assert.equal(line?.path, "/agents");
  assert.equal(line?.operation, "agents.list");
  assert.equal(line?.status, 200);
  assert.doesNotMatch(JSON.stringify(service.log), /hidden/);
});

test("GET /healthz and GET /readyz answer bare JSON", async (t) => {
  const service = await startService(t, manifest("node"));
  assert.deepEqual(await (await service.get("/healthz")).json(), { status: "ok" });
  assert.deepEqual(await (await service.get("/readyz")).json(), { status: "ready" });
});
