/** Contract, "WebSockets": `/ws/logs`. */
import assert from "node:assert/strict";
import { type TestContext, test } from "node:test";
import { manifestWith, startService } from "../support/service.ts";
import { openSocket, refusedSocket } from "../support/sockets.ts";
import { SECRET, token } from "../support/tokens.ts";
import { TRANSPORTS } from "../support/transports.ts";

const serve = (t: TestContext, rest: object = {}) =>
  startService(t, manifestWith({}, { logs: { level: "info" }, ...rest }));
const messages = (logs: { msg: string }[]) => logs.map(({ msg }) => msg);

for (const transport of TRANSPORTS) {
  test(`WS /ws/logs over ${transport}: the newest lines in order, then those that are written, as the filter says`, async (t) => {
    const { url, logger } = await serve(t, { server: { transport } });
    for (const msg of ["one", "two", "three"]) logger.warn({ agentId: "a" }, msg);
    logger.info({ agentId: "a" }, "of a lower level");
    const socket = await openSocket(`${url}/ws/logs?level=warn&agentId=a&limit=2`);
    const { type, logs, timestamp } = await socket.next();
    assert.deepEqual([type, messages(logs)], ["initial", ["two", "three"]]);
    assert.ok(Number.isFinite(Date.parse(timestamp)));

    logger.info({ agentId: "a" }, "too low");
    logger.error({ agentId: "b" }, "of another");
    logger.error({ agentId: "a" }, "four");
    const update = await socket.next();
    assert.deepEqual([update.type, messages(update.logs), update.logs[0].agentId], ["update", ["four"], "a"]);

    const BAD: [message: unknown, error: RegExp][] = [
      [{ type: "updateFilter", filter: { level: "loud" } }, /level must be one of/],
      [{ type: "updateFilter", filter: { since: "yesterday" } }, /since must be an ISO 8601 timestamp/],
      [{ type: "updateFilter", filter: [] }, /message must be JSON such as/],
      [{ type: "other" }, /message must be JSON such as/],
      ["no JSON", /message must be JSON such as/],
      ["null", /message must be JSON such as/],
    ];
    for (const [message, error] of BAD) {
      socket.send(message);
      const answer = await socket.next();
      assert.deepEqual([answer.type, answer.success], ["ERROR", false]);
      assert.match(answer.error, error);
    }
    logger.warn({ agentId: "a" }, "the filter is as it was");
    assert.deepEqual(messages((await socket.next()).logs), ["the filter is as it was"]);
    socket.send({ type: "updateFilter", filter: { executionId: "e" } });
    // Its answer to something bad says that it has read what came before.
    socket.send("no JSON");
    await socket.next();
    logger.warn({ agentId: "a" }, "no longer wanted");
    logger.info({ executionId: "e" }, "wanted now");
    assert.deepEqual(messages((await socket.next()).logs), ["wanted now"]);
    await socket.close();
  });
}

test("WS /ws/logs: the lines at the beginning are bounded, the newest are kept", async (t) => {
  const { url, logger } = await serve(t);
  for (let index = 0; index < 100; index++) logger.warn({ executionId: "long", index }, "x".repeat(15_000));
  const socket = await openSocket(`${url}/ws/logs?executionId=long&limit=1000`);
  const { logs } = await socket.next();
  assert.ok(JSON.stringify(logs).length < 1024 * 1024 + 1000 && logs.length > 60, String(logs.length));
  assert.deepEqual([logs[0].index, logs.at(-1).index], [100 - logs.length, 99]);
  await socket.close();
});

test("WS /ws/logs: a query that does not parse is refused before the handshake, by name", async (t) => {
  const { url } = await serve(t);
  for (const [query, error] of [
    ["level=loud", /level must be one of/],
    ["limit=0", /limit must be >= 1/],
    ["since=x", /since must be an ISO 8601 timestamp/],
    ["executionId=", /executionId must/],
  ] as const) {
    const { status, body } = await refusedSocket(`${url}/ws/logs?${query}`);
    assert.equal(status, 400, query);
    assert.match(JSON.parse(body).error, error);
  }
});

test("WS /ws/logs, moved to users: each sees the lines of his own alone", async (t) => {
  const auth = { mode: "authNext", provider: { use: "jwt", secret: SECRET }, consoleRoutes: [] };
  const { url, logger } = await serve(t, { auth });
  for (const path of ["/ws/logs", "/ws/observability"]) {
    const { status, body } = await refusedSocket(`${url}${path}?token=${token({ name: "nobody" })}`);
    assert.equal(status, 401, path);
    assert.match(JSON.parse(body).error, /the token names no user/);
  }
  const write = () => {
    for (const userId of ["ada", "bob", undefined]) logger.warn({ userId, agentId: "a" }, `of ${userId}`);
  };
  write();
  const socket = await openSocket(`${url}/ws/logs?token=${token({ sub: "ada" })}`);
  assert.deepEqual(messages((await socket.next()).logs), ["of ada"]);
  socket.send({ type: "updateFilter", filter: {} });
  write();
  logger.warn({ userId: "ada" }, "last");
  assert.deepEqual(messages((await socket.next()).logs), ["of ada"]);
  assert.deepEqual(messages((await socket.next()).logs), ["last"]);
  await socket.close();
});
