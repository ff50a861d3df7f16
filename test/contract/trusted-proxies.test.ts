/** `server.trustedProxies`: where it shows what a proxy says of its client, and that nobody else is believed. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { inject } from "../support/inject.ts";
import { pluginFolder } from "../support/plugin-folder.ts";
import { dataOf, type Loose } from "../support/served-upstream.ts";
import { manifestWith, startService } from "../support/service.ts";
import { TRANSPORTS } from "../support/transports.ts";

const FROM = `export default { kind: "route", name: "from", method: "GET", path: "/from",
  handle: async (request, call) => { await null; return call.client; } };`;
const SAID = {
  "x-forwarded-for": "198.51.100.9, 203.0.113.5",
  "x-forwarded-proto": "https",
  "x-forwarded-host": "api.example:8443",
};

const manifest = (server: object) =>
  manifestWith({}, { server: { allowedHosts: ["api.example", "inner"], ...server }, routes: [{ use: "from" }] });

for (const transport of TRANSPORTS) {
  test(`server.trustedProxies: over ${transport}: custom routes, the log, cards and the landing page know the client of a trusted proxy`, async (t) => {
    const plugins = [pluginFolder(t, { "routes/from.mjs": FROM })];
    const service = await startService(t, manifest({ transport, trustedProxies: ["127.0.0.0/8"] }), { plugins });
    assert.deepEqual(await dataOf(service.get("/from", SAID)), {
      address: "203.0.113.5",
      scheme: "https",
      host: "api.example:8443",
    });
    assert.equal(service.log.findLast(({ path }) => path === "/from")!.client, "203.0.113.5");
    const card = await dataOf(service.get("/agents/assistant/card", SAID));
    assert.equal(card.url, "https://api.example:8443/a2a/assistant");
    const known = (await (await service.get("/.well-known/agent-card.json", SAID)).json()) as Loose;
    assert.equal(known.url, card.url);
    assert.match(await (await service.get("/", SAID)).text(), /https:\/\/api\.example:8443/);

    const plain = await dataOf(service.get("/agents/assistant/card"));
    assert.equal(plain.url, `${service.url}/a2a/assistant`, "what one client says is kept for no other");
    assert.doesNotMatch(await (await service.get("/")).text(), /api\.example/);
  });
}

test("without trustedProxies, and of others, the headers say nothing; publicUrl goes before them", async (t) => {
  const plugins = [pluginFolder(t, { "routes/from.mjs": FROM })];
  const open = await startService(t, manifest({}), { plugins });
  const host = open.url.slice("http://".length);
  assert.deepEqual(await dataOf(open.get("/from", SAID)), { address: "127.0.0.1", scheme: "http", host });
  assert.equal((await dataOf(open.get("/agents/assistant/card", SAID))).url, `${open.url}/a2a/assistant`);

  const server = { trustedProxies: ["10.0.0.0/8"], publicUrl: "https://desk.example/base" };
  const service = await startService(t, manifest(server), { plugins });
  const from = async (remoteAddress: string) => {
    const reply = await inject(service.dispatch, { path: "/from", headers: { host: "inner", ...SAID }, remoteAddress });
    return (reply.json() as Loose).data;
  };
  assert.deepEqual(await from("11.0.0.1"), { address: "11.0.0.1", scheme: "http", host: "inner" });
  assert.equal((await from("10.0.0.1")).address, "203.0.113.5");
  const headers = { host: "inner", ...SAID };
  const path = "/agents/assistant/card";
  const card = (await inject(service.dispatch, { path, headers, remoteAddress: "10.0.0.1" })).json() as Loose;
  assert.equal(card.data.url, "https://desk.example/base/a2a/assistant");
});
