/** Routes of protocols with their own format: what the handler returns is sent as it is. */
import assert from "node:assert/strict";
import { describe, type TestContext, test } from "node:test";
import { pino } from "pino";
import { compileCors } from "../../../core/http/cors.ts";
import { Uploads } from "../../../core/http/exchange.ts";
import { InFlight } from "../../../core/http/in-flight.ts";
import { compileSite } from "../../../core/http/origin.ts";
import { compilePipeline } from "../../../core/http/pipeline.ts";
import type { Context, RawReply, Route } from "../../../core/http/route.ts";
import { invalid } from "../../../core/lib/errors.ts";
import type { TextSink } from "../../../core/lib/event-sink.ts";
import { Meters } from "../../../core/observability/metrics/meters.ts";
import { createNodeTransport } from "../../../core/transport/node.ts";
import { createUwsTransport } from "../../../core/transport/uws.ts";
import { type InjectOptions, inject } from "../../support/inject.ts";
import { until } from "../../support/probe.ts";
import { RawClient } from "../../support/raw-http.ts";
import { TRANSPORTS } from "../../support/transports.ts";

const TEXT = ["content-type", "text/plain"];
const FEED = ["content-type", "text/event-stream", "x-own", "yes"];
const malformed = (problem: string): RawReply => ({ status: 400, headers: TEXT, body: `own: ${problem}` });

type Handler = (body: unknown, call: Context<null>) => RawReply | Promise<RawReply>;

interface Rig {
  handler: Handler;
  output?: { malformed?: typeof malformed };
  request?: number;
}

/** A pipeline of one row, `POST /rpc`. */
function rig(t: Pick<TestContext, "after">, { handler, output = {}, request = 60_000 }: Rig) {
  const inFlight = new InFlight();
  t.after(() => inFlight.close());
  const row: Route<null> = {
    operation: "test.rpc",
    method: "POST",
    path: "/rpc",
    group: "execution",
    summary: "Anything",
    checks: { body: () => true },
    readsHeaders: true,
    output: { raw: ["application/json"], ...output },
    handle: ({ body }, call) => handler(body, call),
  };
  const cors = compileCors({ origin: ["https://app.example"] });
  const site = compileSite({ publicUrl: undefined, allowedHosts: [], trustedProxies: [] }, false);
  const dispatch = compilePipeline([row], {
    service: null,
    logger: pino({ level: "silent" }),
    inFlight,
    limits: { request, heartbeat: 1, streamBuffer: 1024 * 1024 },
    logs: false,
    clientOf: site.clientOf,
    requestId: () => "id-1",
    check: () => () => true,
    cors: () => cors,
    defaultCors: cors,
    authorize: () => null,
    authorizeUnknown: null,
    uploads: new Uploads(1024 * 1024),
    bodyLimit: () => 1000,
    valuesLimit: 1000,
    isProxied: false,
    meters: new Meters({ models: [], agents: [], tools: [], workflows: [] }),
    site,
    isSocket: () => false,
  });
  const post = (options: Partial<InjectOptions> = {}) => inject(dispatch, { path: "/rpc", body: {}, ...options });
  return { dispatch, inFlight, post };
}

/** A stream whose sink the test holds, and its end. */
function held() {
  let sink!: TextSink;
  let end!: () => void;
  let fail!: (error: Error) => void;
  const ended = new Promise<void>((resolve, reject) => {
    end = resolve;
    fail = reject;
  });
  const stream = (given: TextSink) => {
    sink = given;
    return ended;
  };
  return { stream, sink: () => sink, end, fail };
}

/** A stream whose reader has not read anything yet. */
async function paused(t: Pick<TestContext, "after">, name: string) {
  const feed = held();
  const { dispatch } = rig(t, { handler: () => ({ status: 200, headers: TEXT, stream: feed.stream }) });
  const transport = name === "uws" ? await createUwsTransport() : createNodeTransport();
  const options = { host: "127.0.0.1", port: 0, connections: 10, headLimit: 16 * 1024, stall: 120_000 };
  const listening = await transport.listen(dispatch, options);
  t.after(() => listening.close());
  const client = await RawClient.open(listening.port);
  client.socket.pause();
  await client.send("POST /rpc HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}");
  while (feed.sink() === undefined) await new Promise((resolve) => setTimeout(resolve, 1));
  return { feed, client };
}

describe("a raw row", () => {
  test("replies with the status, the headers and the body of its handler, and the headers of CORS", async (t) => {
    const { post } = rig(t, {
      handler: (body, { headers }) => ({
        status: 202,
        headers: ["content-type", "text/x", "x-own", headers["x-given"]!],
        body: JSON.stringify(body),
      }),
    });
    const reply = await post({ body: [1, null], headers: { "x-given": "yes", origin: "https://app.example" } });
    assert.deepEqual([reply.status, reply.text()], [202, "[1,null]"]);
    assert.equal(reply.headers["content-type"], "text/x");
    assert.equal(reply.headers["x-own"], "yes");
    assert.equal(reply.headers["access-control-allow-origin"], "https://app.example");
    assert.equal(reply.headers["x-request-id"], "id-1");
  });

  test("a route that writes its reply itself may reply without a body", async (t) => {
    const { post } = rig(t, { handler: async () => ({ status: 202, headers: [], body: null }) });
    const { status, body } = await post();
    assert.deepEqual([status, body.length], [202, 0]);
  });

  for (const [what, body, problem] of [
    ["no JSON", "{", /^own: body is not valid JSON/],
    ["nothing", "", /^own: body is required/],
    ["nested too deep", "[".repeat(900), /^own: body is nested deeper/],
  ] as const) {
    test(`answers a body that is ${what} in the protocol's own form`, async (t) => {
      const handler = () => assert.fail("not called");
      const { post } = rig(t, { handler, output: { malformed } });
      const reply = await post({ body });
      assert.equal(reply.status, 400);
      assert.match(reply.text(), problem);
      const plain = await rig(t, { handler }).post({ body });
      assert.equal((plain.json() as { success: boolean }).success, false, "the envelope where there is no such form");
    });
  }

  test("a raw route refuses a body that is too large or of another type with the envelope, before the protocol is asked", async (t) => {
    const { post } = rig(t, { handler: () => assert.fail("not called"), output: { malformed } });
    const large = await post({ body: "x".repeat(1001) });
    assert.deepEqual([large.status, (large.json() as { success: boolean }).success], [413, false]);
    const other = await post({ body: "{}", headers: { "content-type": "text/plain" } });
    assert.deepEqual([other.status, (other.json() as { success: boolean }).success], [415, false]);
  });

  test("answers with the envelope what its handler throws", async (t) => {
    const { post } = rig(t, {
      handler: () => {
        throw invalid("no");
      },
      output: { malformed },
    });
    const reply = await post();
    assert.deepEqual([reply.status, reply.json()], [400, { success: false, error: "no" }]);
  });
});

describe("the stream of a raw row", () => {
  test("goes out text by text, nothing added, however long it is silent", async (t) => {
    const feed = held();
    const { post } = rig(t, { handler: () => ({ status: 200, headers: FEED, stream: feed.stream }) });
    const chunks: string[] = [];
    const reply = post({ onChunk: (chunk) => void chunks.push(String(chunk)) });
    feed.sink().send("one\n");
    // Longer than the heartbeat, which is looked at four times a second.
    await new Promise((resolve) => setTimeout(resolve, 600));
    feed.sink().send("two\n");
    feed.end();
    const { status, headers } = await reply;
    assert.deepEqual(chunks, ["one\n", "two\n"]);
    assert.deepEqual([status, headers["x-own"], headers.vary], [200, "yes", "Origin"]);
  });

  test("the stream of a raw route that has a heartbeat is told to be alive when it has been silent, and not while it talks", async (t) => {
    const feed = held();
    const form = { status: 200, headers: FEED, stream: feed.stream, heartbeat: "-" };
    const { post } = rig(t, { handler: () => form });
    const chunks: string[] = [];
    const reply = post({ onChunk: (chunk) => void chunks.push(String(chunk)) });
    feed.sink().send("one\n");
    for (let tries = 0; chunks.length < 3 && tries < 6_000; tries++)
      await new Promise((resolve) => setTimeout(resolve, 20));
    feed.end();
    await reply;
    assert.deepEqual(chunks.slice(0, 3), ["one\n", "-", "-"]);
  });

  test("the stream of a raw route that fails ends with the protocol's own text, which says no more than an envelope would", async (t) => {
    const failure = (message: string) => `failed: ${message}`;
    for (const [error, text] of [
      [invalid("a reason"), "begun;failed: a reason"],
      [new Error("secret"), "begun;failed: internal error (request id id-1)"],
    ] as const) {
      const feed = held();
      const { post } = rig(t, { handler: () => ({ status: 200, headers: FEED, stream: feed.stream, failure }) });
      const reply = post();
      feed.sink().send("begun;");
      feed.fail(error);
      assert.equal((await reply).text(), text);
    }
  });

  test("the stream of a raw route that fails is cut off where the protocol has no text for it: nobody takes it for whole", async (t) => {
    const feed = held();
    const { post } = rig(t, { handler: () => ({ status: 200, headers: FEED, stream: feed.stream }) });
    const reply = post();
    feed.sink().send("begun;");
    feed.fail(new Error("secret"));
    await assert.rejects(reply, /the connection was cut/);
  });

  test("the stream of a raw route tells its producer of a client that leaves, and aborts the signal", async (t) => {
    const feed = held();
    let signal!: AbortSignal;
    const { post, inFlight } = rig(t, {
      handler: (_, call) => {
        signal = call.signal;
        return { status: 200, headers: FEED, stream: feed.stream };
      },
    });
    const client = new AbortController();
    const reply = post({ signal: client.signal });
    let left = 0;
    feed.sink().onLeave(() => left++);
    assert.equal(inFlight.size, 1);
    client.abort();
    await assert.rejects(reply, /aborted/);
    assert.deepEqual([left, signal.aborted, feed.sink().closed, inFlight.size], [1, true, true, 0]);
    assert.equal(feed.sink().send("nobody reads this"), undefined);
    feed.end();
  });

  test("the stream of a raw route is told of the end of the service, and outlives the limit of requests", async (t) => {
    const feed = held();
    let signal!: AbortSignal;
    const { post, inFlight } = rig(t, {
      request: 1,
      handler: (_, call) => {
        signal = call.signal;
        return { status: 200, headers: FEED, stream: feed.stream, failure: (message) => `end: ${message}` };
      },
    });
    const reply = post();
    feed.sink().send("begun;");
    await inFlight.drain(400);
    assert.equal((await reply).text(), "begun;end: the server is stopping");
    assert.ok(signal.aborted);
    feed.end();
  });

  for (const name of TRANSPORTS) {
    test(`waits for a slow reader over ${name}, and loses nothing`, async (t) => {
      const piece = "x".repeat(64 * 1024);
      const { feed, client } = await paused(t, name);
      let sent = 0;
      let behind: Promise<void> | undefined;
      for (; behind === undefined; sent++) {
        assert.ok(sent < 10_000, "back-pressure");
        behind = feed.sink().send(piece);
        if (sent % 16 === 0) await new Promise(setImmediate);
      }
      client.socket.resume();
      await behind;
      feed.end();
      assert.equal((await client.reply()).body.length, sent * piece.length);
      client.close();
    });

    test(`sends a text over ${name} that is larger than what may wait for a reader, and a short one after it; as much again is too much`, async (t) => {
      const large = "x".repeat(16 * 1024 * 1024);
      const { feed, client } = await paused(t, name);
      feed.sink().send(large);
      const behind = feed.sink().send("and this");
      assert.ok(behind !== undefined, "it waits");
      client.socket.resume();
      await behind;
      feed.end();
      // All of it, before it is read as a reply: that would be done anew with each piece.
      await client.until(({ length }) => length > large.length);
      assert.equal((await client.reply()).body.length, large.length + "and this".length);
      client.close();
      const { feed: deaf } = await paused(t, name);
      deaf.sink().send(large);
      deaf.sink().send(large);
      await until(() => deaf.sink().closed, "the end, because its producer did not wait for the reader");
      deaf.end();
    });
  }
});
