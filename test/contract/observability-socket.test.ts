/** Contract, "WebSockets": `/ws/observability`, over real sockets. What a tracer would hand over is made by hand here. */
import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { validators } from "../../generated/all-validators.js";
import type { Loose } from "../support/served-upstream.ts";
import { manifestWith, startService, type TestService } from "../support/service.ts";
import { openSocket, refusedSocket, type TestSocket } from "../support/sockets.ts";
import { ASSISTANT, FLOW, HandTrace, record, WRITER } from "../support/spans.ts";
import { SECRET, token } from "../support/tokens.ts";
import { TRANSPORTS } from "../support/transports.ts";

/** Greets first. */
async function follow(service: TestService, path: string, headers: Record<string, string> = {}): Promise<TestSocket> {
  const socket = await openSocket(service.url + path, { headers });
  assert.equal((await socket.next()).type, "CONNECTION_SUCCESS");
  return socket;
}

/** The next span; lines of the log, of other tests among them, are passed over. */
const next = async (socket: TestSocket): Promise<Loose> => {
  const { type, success, data } = await beside("OBSERVABILITY_LOG", socket);
  assert.deepEqual([type, success], ["OBSERVABILITY_EVENT", true]);
  assert.ok(validators.SpanRecord(data.span), JSON.stringify(validators.SpanRecord.errors));
  return data;
};

async function beside(passed: string, socket: TestSocket): Promise<Loose> {
  for (;;) {
    const message = await socket.next();
    if (message.type !== passed) return message;
  }
}

/** What follows a message that asks for an answer has passed all filters before. */
async function nothingElse(socket: TestSocket): Promise<void> {
  await new Promise((resolve) => setImmediate(resolve));
  socket.send({ type: "PING" });
  assert.deepEqual(await beside("OBSERVABILITY_LOG", socket), { type: "PONG", success: true });
}

/** A workflow that asks the writer, and an agent by itself. */
function run(service: TestService): { flow: HandTrace; asked: string; said: string; alone: HandTrace } {
  const { sink } = service.service.traces;
  const flow = new HandTrace(sink, { entity: FLOW });
  const asked = flow.child({ name: "invoke_agent Writer", entity: WRITER });
  const said = flow.child({ name: "chat echo", entity: WRITER, parentSpanId: asked.spanId });
  flow.end(said, { attributes: { "gen_ai.request.model": "echo" } });
  flow.end(asked);
  flow.end(flow.root, { status: { code: 2, message: "it said no" } });
  const alone = record(sink, { entity: ASSISTANT });
  return { flow, asked: asked.spanId, said: said.spanId, alone };
}

for (const transport of TRANSPORTS) {
  describe(`/ws/observability over ${transport}`, () => {
    let service: TestService;
    const ends: (() => unknown)[] = [];
    before(async () => {
      const t = { after: (end: () => unknown) => void ends.push(end) } as never;
      service = await startService(t, manifestWith({}, { server: { transport } }));
    });
    after(async () => {
      for (const end of ends.reverse()) await end();
    });
    const idle = async () => {
      for (let tries = 0; service.service.traces.sink.live && tries < 6_000; tries++) {
        await new Promise((resolve) => setTimeout(resolve, 2));
      }
      assert.equal(service.service.traces.sink.live, false);
    };

    test("greets, answers PING, SUBSCRIBE and what it does not know", async () => {
      const socket = await openSocket(`${service.url}/ws/observability/any/deeper?entityType=agent&entityId=writer`);
      const { type, success, data } = await socket.next();
      assert.deepEqual([type, success], ["CONNECTION_SUCCESS", true]);
      const { message, timestamp, ...filter } = data;
      assert.ok(typeof message === "string" && !Number.isNaN(Date.parse(timestamp)));
      assert.deepEqual(filter, { entityId: "writer", entityType: "agent" });
      socket.send({ type: "PING" });
      assert.deepEqual(await socket.next(), { type: "PONG", success: true });
      socket.send({ type: "SUBSCRIBE" });
      assert.deepEqual(await socket.next(), {
        type: "SUBSCRIPTION_SUCCESS",
        success: true,
        data: { subscribed: true },
      });
      for (const wrong of ["{", "null", '"PING"', '{"type":"PONG"}']) {
        socket.send(wrong);
        const answer = await socket.next();
        assert.deepEqual([answer.type, answer.success], ["ERROR", false]);
        assert.match(answer.error, /must be JSON such as/);
      }
      await socket.close();
      await idle();
    });

    test("spans come as they begin and as they end; while nobody listens nothing is made of them", async () => {
      const socket = await follow(service, "/ws/observability");
      assert.equal(service.service.traces.sink.live, true);
      const { flow, asked, said } = run(service);
      const seen: [string, string][] = [];
      for (let count = 0; count < 6; count++) {
        const { type, span, timestamp } = await next(socket);
        seen.push([type, span.spanId]);
        assert.equal(timestamp, type === "span:start" ? span.startTime : span.endTime);
        assert.equal("endTime" in span, type === "span:end");
        if (span.spanId === said) {
          assert.equal(span.attributes["gen_ai.request.model"], type === "span:end" ? "echo" : undefined);
          assert.equal(span.attributes["entity.id"], "writer");
        }
        if (type === "span:end" && span.spanId === flow.root.spanId) {
          assert.deepEqual(span.status, { code: 2, message: "it said no" });
        }
      }
      const root = flow.root.spanId;
      const [start, end] = ["span:start", "span:end"];
      assert.deepEqual(seen, [
        [start, root],
        [start, asked],
        [start, said],
        [end, said],
        [end, asked],
        [end, root],
      ]);
      await socket.close();
      await idle();
    });

    test("filters hold for every span: a child is shown by the entity that owns it, not by its parent's", async () => {
      const spans = async (query: string, count: number) => {
        const socket = await follow(service, `/ws/observability?${query}`);
        const made = run(service);
        const names: string[] = [];
        for (let index = 0; index < count; index++) names.push((await next(socket)).span.spanId);
        await nothingElse(socket);
        await socket.close();
        return { made, seen: [...new Set(names)] };
      };
      const flows = await spans("entityType=workflow", 2);
      assert.deepEqual(flows.seen, [flows.made.flow.root.spanId]);
      for (const query of ["entityId=writer", "entityId=writer&entityType=agent", "agentId=writer"]) {
        const { made, seen } = await spans(query, 4);
        assert.deepEqual(seen, [made.asked, made.said]);
      }
      const agents = await spans("entityType=agent", 8);
      assert.equal(agents.seen.length, 4);
      assert.deepEqual((await spans("entityType=workflow&entityId=writer", 0)).seen, []);
    });

    test("lines of the log come as records, by the agent or workflow that they are about", async () => {
      const everything = await follow(service, "/ws/observability");
      const writers = await follow(service, "/ws/observability?entityType=agent&entityId=writer");
      const { logger } = service;
      logger.info("of nobody");
      logger.warn({ agentId: "writer", executionId: "e", traceId: `${"0".repeat(31)}1` }, "of the writer");
      logger.warn({ workflowId: "flow" }, "of the flow");
      const bodies: string[] = [];
      while (bodies.at(-1) !== "of the flow") {
        const { type, success, data } = await everything.next();
        assert.deepEqual([type, success], ["OBSERVABILITY_LOG", true]);
        assert.ok(validators.LogRecord(data), JSON.stringify(validators.LogRecord.errors));
        if (/^of /.test(data.body)) bodies.push(data.body);
      }
      assert.deepEqual(bodies, ["of nobody", "of the writer", "of the flow"]);
      const { data } = await writers.next();
      assert.deepEqual([data.body, data.severityText, data.traceId], ["of the writer", "WARN", `${"0".repeat(31)}1`]);
      await nothingElse(writers);
      await everything.close();
      await writers.close();
    });

    test("a query that makes no sense refuses the handshake", async () => {
      for (const [query, message] of [
        ["entityType=tree", /entityType must be one of agent, workflow/],
        ["entityId=", /entityId must be 1 to 256 characters/],
        [`entityId=${"x".repeat(257)}`, /entityId must be 1 to 256 characters/],
      ] as const) {
        const { status, headers, body } = await refusedSocket(`${service.url}/ws/observability?${query}`);
        assert.deepEqual([status, headers["x-error-code"]], [400, "invalid_input"], query);
        assert.match(JSON.parse(body).error, message);
      }
    });
  });
}

test("WS /ws/observability under authNext needs the key of the console; where it is moved to users, each sees his own runs", async (t) => {
  const KEY = "the-key-of-the-console";
  const serve = (auth: object) =>
    startService(
      t,
      manifestWith({}, { auth: { mode: "authNext", provider: { use: "jwt", secret: SECRET }, ...auth } }),
      {
        env: { SERVICE_CONSOLE_ACCESS_KEY: KEY },
      },
    );
  const closed = await serve({});
  const { status, body } = await refusedSocket(`${closed.url}/ws/observability`);
  assert.equal(status, 401);
  assert.equal(JSON.parse(body).success, false);
  const console = await follow(closed, `/ws/observability?key=${KEY}`);
  const { id } = record(closed.service.traces.sink, { userId: "ada" });
  assert.equal((await next(console)).span.traceId, id);

  const users = await serve({ consoleRoutes: [] });
  const ada = await follow(users, `/ws/observability?token=${token({ sub: "ada" })}`);
  const bob = await follow(users, `/ws/observability?token=${token({ sub: "bob" })}`);
  users.logger.info("of nobody");
  users.logger.info({ agentId: "assistant", userId: "ada" }, "hers");
  const line = await ada.next();
  assert.deepEqual([line.type, line.data.body], ["OBSERVABILITY_LOG", "hers"]);
  bob.send({ type: "PING" });
  assert.deepEqual(await bob.next(), { type: "PONG", success: true });
  const made = ["ada", "bob", undefined].map((userId) => record(users.service.traces.sink, { userId }).id);
  for (const [socket, own] of [
    [ada, made[0]],
    [bob, made[1]],
  ] as const) {
    for (let count = 0; count < 4; count++) assert.equal((await next(socket)).span.traceId, own);
    await nothingElse(socket);
  }
});

test("WS /ws/observability under legacy needs the key of the console or a token", async (t) => {
  const env = { SERVICE_CONSOLE_ACCESS_KEY: "the-key-of-the-console" };
  const auth = { mode: "legacy", provider: { use: "jwt", secret: SECRET } };
  const service = await startService(t, manifestWith({}, { auth }), { env });
  assert.equal((await refusedSocket(`${service.url}/ws/observability/deeper`)).status, 401);
  for (const credential of ["key=the-key-of-the-console", `token=${token({ sub: "ada" })}`]) {
    const socket = await follow(service, `/ws/observability/deeper?${credential}`);
    const { id } = record(service.service.traces.sink, { userId: "bob" });
    assert.equal((await next(socket)).span.traceId, id);
    await socket.close();
  }
});
