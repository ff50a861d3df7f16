/** What outlives the token that it was opened with: sockets and streams end with it, on every transport. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { pluginFolder } from "../support/plugin-folder.ts";
import { soon } from "../support/providers.ts";
import { manifestWith, parseEvents, startService, type TestOptions } from "../support/service.ts";
import { openSocket } from "../support/sockets.ts";
import { now, SECRET, token } from "../support/tokens.ts";
import { TRANSPORTS } from "../support/transports.ts";

const PRODUCTION = { NODE_ENV: "production" };
const JWT = { use: "jwt", secret: SECRET };
const bearer = (text: string) => ({ authorization: `Bearer ${text}` });
const PLUGINS = {
  "sockets/echo.mjs": `export default { kind: "socket", path: "/echo", message(peer, data) { peer.send({ data }); } };`,
  "auth/sessions.mjs": `export default { kind: "auth", create: () => ({ type: "sessions", async verifyToken(token) {
    const exp = JSON.parse(token);
    return { id: "u", ...(exp !== null && { exp }) }; } }) };`,
};

/** Takes a tenth of a second a step. */
const slowSteps = (length: number) => ({
  steps: Array.from({ length }, (_, at) => ({ id: `s${at}`, andThen: { use: "slow", with: { milliseconds: 100 } } })),
});

function manifest(transport: string, provider: object = JWT) {
  const models = { slow: { firstDelay: "0ms", delay: "100ms", chunks: 200 } };
  return manifestWith(
    { model: "demo/slow" },
    {
      server: { transport },
      auth: { mode: "authNext", provider },
      routes: [{ use: "echo" }],
      providers: { demo: { use: "scripted", models } },
      workflows: { long: slowSteps(60), longer: slowSteps(150) },
    },
  );
}

const texts = (body: string): string[] => parseEvents(body).map(({ data }) => data);

for (const transport of TRANSPORTS) {
  describe(`the end of a token over ${transport}`, { concurrency: 8 }, () => {
    const options = (t: Parameters<typeof pluginFolder>[0]): TestOptions => ({
      plugins: [pluginFolder(t, PLUGINS)],
      env: PRODUCTION,
    });

    test("a WebSocket is closed with 4401 when the token that opened it ends, and one whose token does not end is not", async (t) => {
      const service = await startService(t, manifest(transport, { ...JWT, requireExp: false }), options(t));
      const open = (exp: number | undefined) => openSocket(`${service.url}/echo?token=${token({ sub: "u", exp })}`);
      const endless = await open(undefined);
      const long = await open(now() + 3600);
      const short = await open(now() + 5);
      short.send("hello");
      assert.deepEqual(await short.next(), { data: "hello" });
      const { code, reason } = await soon(short.closed, "the end");
      assert.deepEqual([code, reason], [4401, "the token has expired"]);
      for (const socket of [endless, long]) {
        socket.send("still here");
        assert.deepEqual(await socket.next(), { data: "still here" });
        await socket.close();
      }
    });

    test("a WebSocket whose token was let in after its end, within the tolerance of clocks, is open until that has passed", async (t) => {
      const service = await startService(t, manifest(transport), options(t));
      const socket = await openSocket(`${service.url}/echo?token=${token({ sub: "u", exp: now() - 25 })}`);
      socket.send("late");
      assert.deepEqual(await socket.next(), { data: "late" });
      assert.equal((await soon(socket.closed, "the end")).code, 4401);
    });

    test("a WebSocket is closed with 4401 when exp, in seconds, of the user that a plugin's verifyToken gave has passed", async (t) => {
      const service = await startService(t, manifest(transport, { use: "sessions" }), options(t));
      const open = (exp: number | null) => openSocket(`${service.url}/echo?token=${JSON.stringify(exp)}`);
      const endless = await open(null);
      const short = await open(Date.now() / 1000 + 5);
      short.send(1);
      assert.deepEqual(await short.next(), { data: 1 });
      assert.equal((await soon(short.closed, "the end")).code, 4401);
      endless.send(2);
      assert.deepEqual(await endless.next(), { data: 2 });
      await endless.close();
    });

    const STREAMS: [path: string, body: object, last: (event: { [key: string]: unknown }) => unknown][] = [
      ["/agents/assistant/stream", { input: "a b c ".repeat(400) }, ({ error }) => error],
      ["/agents/assistant/chat", { input: "a b c ".repeat(400) }, ({ errorText }) => errorText],
      ["/workflows/longer/stream", { input: null }, ({ error }) => error],
      [
        "/v1/responses",
        { model: "assistant", input: "a b c ".repeat(400), background: true, stream: true },
        ({ error }) => (error as { message: unknown }).message,
      ],
    ];
    for (const [path, body, messageOf] of STREAMS) {
      test(`POST ${path}: the stream ends with an error event at the first event after the token's end`, async (t) => {
        const service = await startService(t, manifest(transport), options(t));
        let events: string[] = [];
        // A busy machine may need seconds for the first events.
        for (const seconds of [3, 9]) {
          const end = now() + seconds;
          const reply = await service.post(path, body, bearer(token({ sub: "u", exp: end })));
          if (reply.status === 200) events = texts(await reply.text()).filter((data) => data !== "[DONE]");
          assert.ok(Date.now() >= end * 1000, "not before the end");
          if (events.length > 5) break;
        }
        assert.ok(events.length > 5, "there were events before");
        const last = JSON.parse(events.at(-1)!);
        assert.match(String(messageOf(last)), /the token has expired/);
      });
    }

    test("GET /workflows/:id/executions/:executionId/stream: the stream ends with the token, the execution goes on", async (t) => {
      const service = await startService(t, manifest(transport), options(t));
      const owner = bearer(token({ sub: "u" }));
      const run = await service.post("/workflows/long/stream", { input: null, options: { executionId: "one" } }, owner);
      const end = now() + 3;
      const attached = await service.get(
        "/workflows/long/executions/one/stream",
        bearer(token({ sub: "u", exp: end })),
      );
      assert.equal(attached.status, 200);
      const events = texts(await attached.text());
      assert.match(JSON.parse(events.at(-1)!).error, /the token has expired/);
      const rest = texts(await run.text());
      assert.equal(JSON.parse(rest.at(-1)!).type, "workflow-result");
    });
  });
}

test("POST /agents/:id/text, verifyToken of a plugin: a user whose exp has passed, or is no number, refuses the token", async (t) => {
  const service = await startService(t, manifest("node", { use: "sessions" }), {
    plugins: [pluginFolder(t, PLUGINS)],
    env: PRODUCTION,
  });
  const status = async (exp: unknown) =>
    (await service.post("/agents/assistant/text", { input: "x" }, bearer(JSON.stringify(exp)))).status;
  assert.equal(await status(Date.now() / 1000 + 60), 200);
  assert.equal(await status(Date.now() / 1000 - 1), 401);
  assert.equal(await status("tomorrow"), 401);
  assert.ok(service.log.some(({ msg }) => /exp must be a number of seconds/.test(String(msg))));
});
