/**
 * Methods and headers in disguise, sent as they are over sockets: none of them is a credential, or leads where the plain
 * request would not be let in (contract, "Authentication").
 */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { CONSOLE_KEY } from "../support/access-credentials.ts";
import { KEY, opened, send } from "../support/access-wire.ts";
import { TRANSPORTS } from "../support/transports.ts";

for (const transport of TRANSPORTS) {
  describe(`GET and HEAD of every route, asked for in disguise over ${transport}`, () => {
    test("no method but GET and HEAD reaches what GET answers, and HEAD is let in as GET is", async (t) => {
      const secured = await opened(t, transport);
      for (const method of ["HEAD", "get", "Get", "GETX", "POST", "PUT", "DELETE", "PATCH", "TRACE", "PROPFIND"]) {
        for (const path of ["/agents", "/agents/assistant/secret"]) {
          const { reply, reached } = await send(secured, `${method} ${path}`);
          assert.ok(!reached, `${method} ${path}: ${reply?.status}`);
        }
      }
      assert.equal((await send(secured, "HEAD /agents", [KEY])).reply?.status, 200);
      assert.equal((await send(secured, "HEAD /agents")).reply?.body, "");
    });

    test("OPTIONS tells of a route its methods and nothing else", async (t) => {
      const secured = await opened(t, transport);
      for (const path of ["/agents", "/api/memory/conversations"]) {
        const { reply } = await send(secured, `OPTIONS ${path}`, ["origin: https://app.example"]);
        assert.deepEqual([reply?.status, reply?.body], [204, ""]);
      }
      assert.ok(!(await send(secured, "OPTIONS *")).reached);
    });

    test("headers that name another path or method, or where a request comes from, count for nothing", async (t) => {
      const secured = await opened(t, transport);
      const headers = [
        "x-original-url: /custom/x",
        "x-rewrite-url: /custom/x",
        "x-forwarded-path: /custom/x",
        "x-http-method-override: OPTIONS",
        "x-forwarded-for: 127.0.0.1",
        "forwarded: for=127.0.0.1;proto=https",
        "x-forwarded-user: ada",
        "x-real-ip: 127.0.0.1",
        "upgrade: websocket",
        "x-service-dev: true",
        "origin: http://localhost:3141",
        "cookie: user=ada; key=x",
      ];
      for (const path of ["/agents", "/agents/assistant/secret", "/nowhere"]) {
        for (const each of [...headers.map((header) => [header]), headers]) {
          const { reply } = await send(secured, `GET ${path}`, each);
          assert.equal(reply?.status, 401, `${path} with ${each.join(", ")}`);
        }
      }
    });

    test("a header whose name is almost that of a credential is none", async (t) => {
      const secured = await opened(t, transport);
      const good = `Bearer ${secured.signer.sign()}`;
      const rows = [
        `authorization : ${good}`,
        `authorization\t: ${good}`,
        `proxy-authorization: ${good}`,
        `x-authorization: ${good}`,
        `x-a: b\nauthorization: ${good}`,
        `x-a: b\r\n authorization: ${good}`,
      ];
      const keys = [
        `x_console_access_key: ${CONSOLE_KEY}`,
        `x-console-access-key : ${CONSOLE_KEY}`,
        `console-access-key: ${CONSOLE_KEY}`,
      ];
      const sent = [
        ...rows.map((header) => ["/agents/assistant/secret", header]),
        ...keys.map((header) => ["/agents", header]),
      ] as [string, string][];
      // To some of these uWebSockets.js says nothing at all.
      const all = await Promise.all(sent.map(([path, header]) => send(secured, `GET ${path}`, [header], 400)));
      for (const [index, { reply, reached }] of all.entries())
        assert.ok(!reached, `${sent[index]!.join(" with ")}: ${reply?.status}`);
    });

    test("a credential that is sent twice is none, and its name may be written in any case", async (t) => {
      const secured = await opened(t, transport);
      const good = `Bearer ${secured.signer.sign()}`;
      const rows: [path: string, headers: string[], status: number][] = [
        ["/agents/assistant/secret", [`AUTHORIZATION: ${good}`], 200],
        ["/agents/assistant/secret", [`authorization:${good}`], 200],
        ["/agents/assistant/secret", [`authorization:  ${good.replace(" ", "   ")}  `], 200],
        ["/agents/assistant/secret", [`authorization: ${good}`, `authorization: ${good}`], 401],
        ["/agents/assistant/secret", ["authorization: Bearer x", `Authorization: ${good}`], 401],
        ["/agents/assistant/secret", [`authorization: ${good}`, "Authorization: Bearer x"], 401],
        ["/agents", [KEY.toUpperCase().replace(/(?<=: ).*/, CONSOLE_KEY)], 200],
        ["/agents", [KEY, KEY], 401],
        ["/agents", [KEY, "x-console-access-key: x"], 401],
        ["/agents", ["x-console-access-key: x", KEY], 401],
      ];
      for (const [path, headers, status] of rows) {
        const { reply } = await send(secured, `GET ${path}`, headers);
        assert.equal(reply?.status, status, `${path} with ${headers.map((each) => each.slice(0, 40))}`);
      }
    });
  });
}
