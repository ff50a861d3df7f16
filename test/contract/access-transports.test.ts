/** Access over sockets: credentials that take time to check, bodies that arrive meanwhile, clients that leave. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { FIXTURES } from "../support/fixtures.ts";
import { RawClient } from "../support/raw-http.ts";
import { manifestWith, startService } from "../support/service.ts";
import { TRANSPORTS } from "../support/transports.ts";

const env = { NODE_ENV: "production", SERVICE_CONSOLE_ACCESS_KEY: "console-key-0123456789" };
const USER = { authorization: "Bearer ada" };
const LARGE = JSON.stringify({ input: "x".repeat(600_000) });

for (const transport of TRANSPORTS) {
  describe(`every route with auth over ${transport}`, () => {
    const start = (t: Parameters<typeof startService>[0], auth: object = {}) => {
      const access = { mode: "authNext", provider: { use: "slow-auth" }, ...auth };
      const rest = { auth: access, server: { transport }, routes: [{ use: "who" }] };
      return startService(t, manifestWith({}, rest), { env, plugins: [FIXTURES] });
    };

    test("a body that arrives while the token is checked is read once it is good, and dropped when it is not", async (t) => {
      const service = await start(t);
      for (const body of [{ input: "Hi" }, LARGE]) {
        const good = await service.post("/agents/assistant/text", body, USER);
        assert.equal(good.status, 200);
        await good.text();
        for (const headers of [{}, { authorization: "Bearer nobody" }] as Record<string, string>[]) {
          const bad = await service.post("/agents/assistant/text", body, headers);
          assert.equal(bad.status, 401);
          assert.equal(((await bad.json()) as { success: boolean }).success, false);
        }
      }
    });

    test("the provider is told the request, and its user reaches the route", async (t) => {
      const service = await start(t);
      const reply = await service.get("/who?a=1&b=%20", { ...USER, "x-mine": "yes" });
      const { data } = (await reply.json()) as { data: { user: Record<string, unknown> } };
      assert.deepEqual(data.user, { id: "ada", method: "GET", path: "/who", query: { a: "1", b: " " }, mine: "yes" });
    });

    test("what no route answers is 404 for a good token and 401 for another, with a body too", async (t) => {
      const service = await start(t);
      for (const path of ["/nowhere", "/agents/assistant/text//"]) {
        const good = await service.post(path, LARGE, USER);
        assert.equal(good.status, 404);
        await good.text();
        const bad = await service.post(path, LARGE, { authorization: "Bearer nobody" });
        assert.equal(bad.status, 401);
        await bad.text();
      }
      const other = await service.post("/who", {}, USER);
      assert.equal(other.status, 405);
      await other.text();
    });

    test("a client that leaves while its token is checked leaves nothing behind", async (t) => {
      const service = await start(t);
      const client = await RawClient.open(service.port);
      await client.send("GET /who HTTP/1.1\r\nhost: x\r\nauthorization: Bearer slow\r\n\r\n");
      await new Promise((resolve) => setTimeout(resolve, 30));
      client.close();
      await new Promise((resolve) => setTimeout(resolve, 250));
      assert.equal((await service.get("/who", USER)).status, 200);
      assert.deepEqual(
        service.log.filter(({ level }) => level === "error"),
        [],
      );
    });

    test("the target in absolute form, and a path written in disguise, are no way around", async (t) => {
      const service = await start(t);
      const targets: [target: string, status: number][] = [
        ["http://x/who", transport === "uws" ? 505 : 401],
        ["/who/", 401],
        ["//who", 401],
        ["/./who", 401],
        ["/healthz/../who", 401],
        ["/healthz/%2e%2e/who", 401],
        ["/healthz%2f..%2fwho", 401],
        ["/%77ho", 401],
        ["/WHO", 401],
        ["/healthz", 200],
      ];
      for (const [target, status] of targets) {
        const client = await RawClient.open(service.port);
        await client.send(`GET ${target} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n`);
        assert.equal((await client.reply()).status, status, target);
        client.close();
      }
    });
  });
}
