/** Every WebSocket with every credential in every mode. */
import assert from "node:assert/strict";
import { describe, type TestContext, test } from "node:test";
import { SOCKETS } from "../../core/api/sockets/index.ts";
import { mistakes, type Send, targetOf, textOf } from "../support/access-mistakes.ts";
import { MODES, titleOf } from "../support/access-modes.ts";
import { makeKeys, type Secured, type SecuredOptions, startSecured } from "../support/access-services.ts";
import { CONTRACT_SOCKETS, CUSTOM_SOCKETS, NO_SOCKETS, socketCredentials } from "../support/access-sockets.ts";
import { type Endpoint, needsOf, opens } from "../support/access-table.ts";
import { injectUpgrade } from "../support/inject-upgrade.ts";
import type { Loose } from "../support/served-upstream.ts";
import { openSocket, refusedSocket } from "../support/sockets.ts";
import { TRANSPORTS } from "../support/transports.ts";

const KEYS = makeKeys();
const EVERY: readonly Endpoint[] = [...CONTRACT_SOCKETS, ...CUSTOM_SOCKETS, ...NO_SOCKETS];
const OPEN_ENDS = [...SOCKETS, ...CUSTOM_SOCKETS].map(({ path }) => path).filter((path) => path.endsWith("/**"));
const PATHS = new Set([...SOCKETS, ...CUSTOM_SOCKETS].map(({ path }) => path));
const isServed = ({ path }: Endpoint) =>
  PATHS.has(path) || OPEN_ENDS.some((open) => `${path}/`.startsWith(open.slice(0, -2)));

const injected =
  ({ service }: Secured): Send =>
  async ({ path, headers }) => {
    const reply = await injectUpgrade(service.upgrade, { path, headers });
    reply.socket?.close();
    return reply;
  };

const connected =
  ({ service }: Secured): Send =>
  async ({ path, headers }) => {
    const url = service.url + path;
    const refused = await refusedSocket(url, { headers }).catch(() => null);
    if (refused === null) return { status: 101, headers: {}, text: () => "" };
    return { ...refused, text: () => refused.body };
  };

test("the tables of expected access have every socket of the service", () => {
  const listed = new Set(CONTRACT_SOCKETS.map(({ path }) => path));
  assert.deepEqual(
    SOCKETS.map(({ path }) => path.replace("/**", "")).filter((path) => !listed.has(path)),
    [],
  );
});

for (const mode of MODES) {
  describe(titleOf(mode), () => {
    const start = (t: TestContext) => startSecured(t, mode, KEYS);

    test("every socket, custom socket and unknown path authorizes exactly the credentials that it should", async (t) => {
      const secured = await start(t);
      const sent = socketCredentials(secured.signer);
      assert.deepEqual(await mistakes(injected(secured), mode, EVERY, sent, isServed), []);
    });

    test("a custom socket sees the user of the token that opened it, and no credential", async (t) => {
      const { service, signer } = await start(t);
      for (const endpoint of CUSTOM_SOCKETS) {
        const needs = needsOf(endpoint, mode);
        for (const credential of socketCredentials(signer)) {
          if (!opens(credential.worth, needs, mode)) continue;
          const path = targetOf(endpoint, credential);
          const { socket } = await injectUpgrade(service.upgrade, { path, headers: credential.headers });
          const { reached, user, query } = JSON.parse(socket!.received[0]!) as Loose;
          socket!.close();
          assert.equal(reached, textOf(endpoint));
          const asked = needs === "user" || (needs === "either" && credential.worth === "user");
          const known = asked && (credential.worth === "user" || credential.worth === "both");
          const expected = known ? (credential.name.startsWith("token of another user") ? "bob" : "ada") : null;
          assert.equal(user, expected, `${reached} with ${credential.name}`);
          for (const name of ["key", "token", "dev"]) assert.ok(!(name in query), credential.name);
        }
      }
    });
  });
}

test("a path is what it is: no spelling opens a socket that the plain one would not", async (t) => {
  const options: SecuredOptions = {
    mode: "authNext",
    production: true,
    provider: "secret",
    auth: {
      publicRoutes: ["WS /sockets/open", "WS /sockets/tree/below/open/*", "/custom/*"],
      consoleRoutes: ["WS /sockets/kept"],
    },
  };
  const { service, signer } = await startSecured(t, options, KEYS);
  const status = async (path: string) => (await injectUpgrade(service.upgrade, { path })).status;
  for (const path of ["/sockets/open", "/sockets/%6fpen", "/sockets/tree/below/open/a", "/sockets/tree/below/open/a/b"])
    assert.equal(await status(path), 101, path);
  for (const path of [
    "/sockets/open//",
    "/sockets/Open",
    "/sockets/open%2f",
    "/sockets/open;x",
    "/sockets//open",
    "/sockets/other",
    "/sockets/tree/below/open",
    "/sockets/tree/below/Open/a",
    "/sockets/tree/below/open/../../x",
    "/sockets/tree/below/x/open/a",
    "/custom/../sockets/other",
    "/custom/%2e%2e/sockets/other",
  ])
    assert.ok([401, 404].includes(await status(path)), path);
  assert.equal(await status("/custom/x"), 404);
  assert.equal(await status(`/sockets/kept?token=${signer.sign()}`), 401);
  // Where nothing is said of it, `/ws` is a route of users too.
  assert.equal(await status(`/ws?token=${signer.sign()}`), 101);
});

const SOME = [
  "nothing",
  "key",
  "key in the query",
  "token",
  "token, as a parameter",
  "token: expired, as a parameter",
  "development in the query",
];

for (const transport of TRANSPORTS) {
  test(`over ${transport} the same are authorized, with tokens that take time to check`, async (t) => {
    for (const mode of ["authNext", "legacy"] as const) {
      const options: SecuredOptions = { mode, production: true, provider: "jwks", transport };
      const secured = await startSecured(t, options, KEYS);
      const some = socketCredentials(secured.signer).filter(({ name }) => SOME.includes(name));
      assert.equal(some.length, SOME.length);
      assert.deepEqual(await mistakes(connected(secured), options, EVERY, some, isServed), []);
    }
  });

  test(`over ${transport} the user and the user's objects are those of the token`, async (t) => {
    const secured = await startSecured(t, { mode: "authNext", production: true, provider: "secret", transport }, KEYS);
    const socket = await openSocket(`${secured.service.url}/sockets/1?token=${secured.signer.sign()}`);
    assert.equal((await socket.next()).user, "ada");
    await socket.close();
  });
}
