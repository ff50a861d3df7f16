/** `WS /v1/responses`: who may open it, what it refuses, the order of its responses, what they continue, and how they end. */
import assert from "node:assert/strict";
import { test } from "node:test";
import OpenAI from "openai";
import { ResponsesWS } from "openai/resources/responses/ws";
import { pino } from "pino";
import { type OpenSocket, Uploads } from "../../core/http/exchange.ts";
import { SocketPeer } from "../../core/http/socket-peer.ts";
import { NOBODY } from "../../core/identity/principal.ts";
import { openResponsesSocket } from "../../core/openai/socket.ts";
import { AUTH, as } from "../support/approvals.ts";
import { calls, failsAfter, failure, says, stallsBeforeHead } from "../support/openai-upstream.ts";
import { until } from "../support/probe.ts";
import { dataOf, type Loose, serveUpstream } from "../support/served-upstream.ts";
import { manifestWith, startService, type TestService } from "../support/service.ts";
import { openSocket, refusedSocket, type TestSocket } from "../support/sockets.ts";
import { TRANSPORTS } from "../support/transports.ts";

const PATH = "/v1/responses";
const create = (body: object) => ({ type: "response.create", model: "assistant", ...body });
const open = async (t: Loose, { url }: TestService, headers: Record<string, string> = {}): Promise<TestSocket> => {
  const socket = await openSocket(url + PATH, { headers });
  t.after(() => socket.close());
  return socket;
};
const isLast = ({ type }: Loose) => type === "error" || /^response\.(completed|incomplete|failed)$/.test(type);

/** The messages up to the end of a response, or to an error. */
async function rest(socket: TestSocket): Promise<Loose[]> {
  const messages: Loose[] = [];
  do messages.push(await socket.next());
  while (!isLast(messages.at(-1)));
  return messages;
}
const texts = ({ output }: Loose) =>
  output.filter(({ type }: Loose) => type === "message").map(({ content }: Loose) => content[0].text);
const said = (request: Loose) => request.body.messages.map(({ content }: Loose) => content);

for (const transport of TRANSPORTS) {
  test(`WS /v1/responses over ${transport}: without a user's token the handshake is 401 in OpenAI's shape, with it the agent knows the user`, async (t) => {
    const service = await startService(t, manifestWith({}, { auth: AUTH, server: { transport } }));
    for (const headers of [{}, { authorization: "Bearer no" }] as Record<string, string>[]) {
      const { status, body } = await refusedSocket(service.url + PATH, { headers });
      const { error } = JSON.parse(body);
      assert.deepEqual([status, error.type, error.code], [401, "authentication_error", "invalid_api_key"]);
    }
    const socket = await open(t, service, as("ada"));
    socket.send(create({ input: "Hello" }));
    const { response } = (await rest(socket)).at(-1);
    assert.equal(response.status, "completed");
    assert.equal((await service.get(`${PATH}/${response.id}`, as("ada"))).status, 200);
  });

  test(`a handshake for a socket below /v1 that does not exist is 404 in OpenAI's shape over ${transport}, and elsewhere in the envelope`, async (t) => {
    const service = await startService(t, manifestWith({}, { server: { transport } }));
    for (const path of ["/v1/unknown", "/v1/responses/resp_1"]) {
      const { status, body } = await refusedSocket(service.url + path);
      assert.deepEqual([status, JSON.parse(body).error.code], [404, "not_found"]);
    }
    const { status, body } = await refusedSocket(`${service.url}/unknown`);
    assert.deepEqual([status, JSON.parse(body).success], [404, false]);
  });

  test(`WS /v1/responses over ${transport}: messages that come at once are answered one after the other`, async (t) => {
    const { service, upstream } = await serveUpstream(t, {}, { server: { transport } });
    upstream.replies(says("One.", { delay: 20, chunks: 4 }), says("Two."), says("Three."));
    const socket = await open(t, service);
    for (const input of ["1", "2", "3"]) socket.send(create({ input }));
    for (const text of ["One.", "Two.", "Three."]) {
      const events = await rest(socket);
      assert.deepEqual(
        events.map(({ sequence_number }) => sequence_number),
        events.map((_, index) => index),
      );
      assert.deepEqual(texts(events.at(-1).response), [text]);
    }
  });

  test(`WS /v1/responses over ${transport}: a client that reads late gets every event, and waits for no ping`, async (t) => {
    const { service, upstream } = await serveUpstream(t, {}, { server: { transport } });
    upstream.replies(says("x".repeat(3 * 1024 * 1024), { chunks: 100 }));
    const socket = await open(t, service);
    let pings = 0;
    socket.socket.on("ping", () => pings++);
    socket.send(create({ input: "Hello" }));
    await socket.next();
    socket.socket.pause();
    await new Promise((resolve) => setTimeout(resolve, 200));
    socket.socket.resume();
    const events = await rest(socket);
    assert.deepEqual(
      events.map(({ sequence_number }) => sequence_number),
      events.map((_, index) => index + 1),
    );
    assert.equal(texts(events.at(-1).response)[0].length, 3 * 1024 * 1024);
    assert.equal(pings, 0);
  });

  test(`WS /v1/responses over ${transport}: a service that stops ends the response that runs, and begins no other`, async (t) => {
    const { service, upstream } = await serveUpstream(t, {}, { server: { transport } });
    upstream.replies(says("Done at last.", { delay: 100, chunks: 5 }));
    const socket = await open(t, service);
    socket.send(create({ input: "Hello" }));
    await socket.next();
    const stopped = service.stop();
    socket.send(create({ input: "And more" }));
    const { type, response } = (await rest(socket)).at(-1);
    assert.deepEqual([type, texts(response)], ["response.completed", ["Done at last."]]);
    const [refused] = await rest(socket);
    assert.deepEqual([refused.type, refused.status], ["error", 503]);
    assert.equal((await socket.closed).code, 1001);
    await stopped;
    assert.equal(upstream.requests.length, 1);
  });

  test(`WS /v1/responses over ${transport}: a client that leaves stops the model`, async (t) => {
    const { service, upstream } = await serveUpstream(t, {}, { server: { transport } });
    upstream.replies({ steps: [{ text: "Some words" }, { stall: true }] });
    const socket = await open(t, service);
    socket.send(create({ input: "Hello" }));
    const request = await upstream.request(0);
    await socket.next();
    await socket.close();
    await request.aborted;
  });
}

test("openai 7: ResponsesWS over WS /v1/responses gets the events of a response, with its key as the user's token", async (t) => {
  const service = await startService(t, manifestWith({}, { auth: AUTH }));
  const apiKey = as("ada").authorization.slice("Bearer ".length);
  const socket = new ResponsesWS(new OpenAI({ apiKey, baseURL: `${service.url}/v1` }));
  const events: Loose[] = [];
  const ended = new Promise<void>((resolve, reject) => {
    socket.on("error", reject);
    socket.on("event", (event: Loose) => {
      events.push(event);
      if (isLast(event)) resolve();
    });
  });
  socket.send({ type: "response.create", model: "assistant", input: "Hello there" } as Loose);
  await ended;
  socket.close();
  assert.deepEqual([events[0].type, texts(events.at(-1).response)], ["response.created", ["Hello there"]]);
});

const BAD: [message: unknown, param: string, code?: string, status?: number][] = [
  ["{", ""],
  ["[]", ""],
  [`${"[".repeat(10_000)}${"]".repeat(10_000)}`, ""],
  [{ type: "response.cancel" }, "type"],
  [create({}), "input"],
  [create({ model: "nobody", input: "x" }), "model", "model_not_found", 404],
  [create({ input: "x", temperature: 3 }), "temperature"],
  [create({ input: [{ role: "robot", content: "x" }] }), "input[0].role"],
  [create({ input: "x", background: true }), "background", "unsupported_parameter"],
  [create({ input: "x", generate: false }), "generate", "unsupported_parameter"],
  [create({ input: "x", stream_id: "a" }), "stream_id", "unsupported_parameter"],
];

test("WS /v1/responses answers a bad message with an error that names the field, and stays open", async (t) => {
  const { service, upstream } = await serveUpstream(t);
  const socket = await open(t, service);
  for (const [message, param, code = "invalid_value", status = 400] of BAD) {
    socket.send(message);
    const error = await socket.next();
    assert.deepEqual([error.type, error.status, error.error.param, error.error.code], ["error", status, param, code]);
    for (const value of Object.values(error.error)) assert.equal(typeof value, "string");
  }
  assert.equal(upstream.requests.length, 0);
  socket.send(create({ input: "Hello", stream: true, background: null }));
  assert.equal((await rest(socket)).at(-1).type, "response.completed");
});

test("WS /v1/responses: a model that fails is an error before the response has begun, and ends the response after that; the next is answered", async (t) => {
  const { service, upstream } = await serveUpstream(t);
  upstream.replies(failure(500), failsAfter("Some words"), says("Fine."));
  const socket = await open(t, service);
  for (const input of ["1", "2", "3"]) socket.send(create({ input }));
  const [early] = await rest(socket);
  assert.deepEqual([early.type, early.status, early.error.code], ["error", 500, "model_error"]);
  const late = [...(await rest(socket)), await socket.next()];
  assert.deepEqual(
    late.slice(-2).map(({ type }) => type),
    ["error", "response.failed"],
  );
  assert.deepEqual([late.at(-2).error.code, late.at(-1).response.status], ["model_error", "failed"]);
  assert.deepEqual(texts((await rest(socket)).at(-1).response), ["Fine."]);
});

test("WS /v1/responses: turns that are not stored are one conversation, with their tool calls, and nothing of them can be read", async (t) => {
  const { service, upstream } = await serveUpstream(t, { tools: ["sum"] }, { tools: { sum: { use: "add" } } });
  upstream.replies(calls([{ id: "c1", name: "sum", input: { a: 1, b: 2 } }]), says("3."), says("Yes."), says("Sure."));
  const socket = await open(t, service);
  let previous: Loose = {};
  for (const input of ["1 + 2?", "Really?", "Sure?"]) {
    socket.send(create({ input, store: false, ...previous }));
    const { response } = (await rest(socket)).at(-1);
    assert.equal(response.store, false);
    assert.equal((await service.get(`${PATH}/${response.id}`)).status, 404);
    previous = { previous_response_id: response.id };
  }
  assert.deepEqual(said(upstream.requests.at(-1)), [
    "Help.",
    "1 + 2?",
    null,
    '{"sum":3}',
    "3.",
    "Really?",
    "Yes.",
    "Sure?",
  ]);
  const rows = await service.service.store.scan({ prefix: "rs/", limit: 10 });
  assert.deepEqual(rows, []);
});

test("WS /v1/responses: only the newest response of a socket is there unless it is stored, and a stored one goes on anywhere", async (t) => {
  const { service } = await serveUpstream(t);
  const socket = await open(t, service);
  const ask = async (at: TestSocket, body: object) => {
    at.send(create({ input: "x", ...body }));
    return (await rest(at)).at(-1);
  };
  const first = await ask(socket, { store: false });
  const second = await ask(socket, {});
  const gone = await ask(socket, { previous_response_id: first.response.id });
  assert.equal(gone.error.code, "previous_response_not_found");
  const other = await open(t, service);
  const went = await ask(other, { previous_response_id: second.response.id });
  assert.equal(went.type, "response.completed");
});

test("WS /v1/responses: what an agent does there is traced, as a child of the trace that the handshake names", async (t) => {
  const service = await startService(t, manifestWith());
  const traceId = "0af7651916cd43dd8448eb211c80319c";
  const socket = await open(t, service, { traceparent: `00-${traceId}-b7ad6b7169203331-01` });
  socket.send(create({ input: "Hello" }));
  await rest(socket);
  const { traces } = await dataOf(service.get("/observability/traces"));
  assert.deepEqual(
    traces.map((trace: Loose) => trace.traceId),
    [traceId],
  );
});

/** A socket without a network: `wire` is what its transport would be. */
function peerOf(service: TestService, wire: Partial<OpenSocket>, maxAge?: number) {
  const sent: Loose[] = [];
  const own = {
    buffered: 0,
    send: (text: unknown) => void sent.push(JSON.parse(String(text))),
    cork: (work: () => void) => work(),
    close() {},
    destroy() {},
  };
  const info = {
    ...{ operation: "x", user: null, caller: NOBODY, expires: null, requestId: "r", params: {}, query: {} },
    client: { address: "127.0.0.1", origin: null },
    logger: pino({ enabled: false }),
    trace: undefined,
    uploads: new Uploads(1024 * 1024),
  };
  const peer = new SocketPeer(Object.assign(own, wire), info as never, () => {});
  peer.start(() => openResponsesSocket(peer, service.service, maxAge));
  return { peer, sent, own };
}

test("WS /v1/responses: a socket that is too old ends after the response that runs, with websocket_connection_limit_reached", async (t) => {
  const { service, upstream } = await serveUpstream(t);
  upstream.replies(says("Late.", { delay: 60, chunks: 3 }));
  const { sent, code } = await new Promise<{ sent: Loose[]; code: number }>((resolve) => {
    const { peer, sent } = peerOf(service, { close: (code) => resolve({ sent, code }) }, 30);
    peer.message(JSON.stringify(create({ input: "Hello" })));
  });
  const [before, last] = sent.slice(-2);
  assert.deepEqual([code, before.type, last.type, last.status], [1000, "response.completed", "error", 400]);
  assert.equal(last.error.code, "websocket_connection_limit_reached");
});

test("WS /v1/responses: while a client is behind the agent is not asked on, and goes on when it has caught up", async (t) => {
  const tools = { sum: { use: "add" } };
  const { service, upstream } = await serveUpstream(t, { tools: ["sum"] }, { tools });
  upstream.replies(calls([{ id: "c1", name: "sum", input: { a: 1, b: 2 } }]), says("Nobody is behind."), says("3."));
  const { peer, sent, own } = peerOf(service, { buffered: 1024 * 1024 });
  peer.message(JSON.stringify(create({ input: "1 + 2?" })));
  await upstream.request(0);
  await (await service.post(PATH, { model: "assistant", input: "x" })).json();
  assert.deepEqual([upstream.requests.length, sent.some(isLast)], [2, false]);
  Object.assign(own, { buffered: 0 });
  peer.drained();
  await until(async () => sent.some(isLast), "the end of the response");
  assert.deepEqual([upstream.requests.length, sent.at(-1).type], [3, "response.completed"]);
  peer.close();
});

test("WS /v1/responses: a client that sends bad messages and reads no answers is closed with 1013, and its refusals do not pile up", async (t) => {
  const service = await startService(t, manifestWith());
  const { peer, sent, code } = await new Promise<{ peer: SocketPeer; sent: Loose[]; code: number }>((resolve) => {
    const { peer, sent } = peerOf(service, {
      buffered: 1024 * 1024,
      close: (code) => resolve({ peer, sent, code }),
    });
    for (let count = 0; count < 1000; count++) setImmediate(() => peer.message("{"));
    setImmediate(() => setImmediate(() => resolve({ peer, sent, code: 0 })));
  });
  assert.deepEqual([code, sent.length], [1013, 1]);
  peer.close();
});

test("server.openai: false: WS /v1/responses does not exist", async (t) => {
  const service = await startService(t, manifestWith({}, { server: { openai: false } }));
  assert.equal((await refusedSocket(service.url + PATH)).status, 404);
});

for (const transport of TRANSPORTS) {
  test(`WS /v1/responses over ${transport}: beside the message that is answered two wait, each further one is an error event rate_limit_exceeded, and the socket stays`, async (t) => {
    const { service, upstream } = await serveUpstream(t, {}, { server: { transport } });
    upstream.fallback(({ lastUserText }) => says(lastUserText, { delay: 20 }));
    upstream.replies({ ...says("1"), headDelay: 400 });
    const socket = await open(t, service);
    socket.send(create({ input: "1" }));
    await upstream.request(0);
    for (const input of ["2", "3", "4", "5"]) socket.send(create({ input }));
    const refused = [await rest(socket), await rest(socket)].map((events) => events.at(-1));
    for (const { type, status, error } of refused)
      assert.deepEqual(
        [type, status, error.type, error.code],
        ["error", 429, "rate_limit_error", "rate_limit_exceeded"],
      );
    for (const text of ["1", "2", "3"]) assert.deepEqual(texts((await rest(socket)).at(-1).response), [text]);
    socket.send(create({ input: "6" }));
    assert.deepEqual(texts((await rest(socket)).at(-1).response), ["6"]);
    assert.equal(upstream.requests.length, 4);
  });

  test(`WS /v1/responses over ${transport}: messages that wait on several sockets count for server.limits.uploads, and one beyond is an error event 503`, async (t) => {
    const limits = { body: "64KiB", uploads: "64KiB" };
    const { service, upstream } = await serveUpstream(t, {}, { server: { transport, limits } });
    upstream.fallback(stallsBeforeHead());
    const counted = () => service.service.meters.limits.used("server.limits.uploads")!;
    const [first, second] = [await open(t, service), await open(t, service)];
    const large = create({ input: "x".repeat(20 * 1024) });
    // Three are held; the fourth of this socket, and the first of the other, find no room.
    for (let count = 0; count < 4; count++) first.send(large);
    for (const socket of [first, second]) {
      if (socket === second) second.send(large);
      await until(() => socket.waiting.length > 0 || upstream.requests.length > 1, "the refusal");
      assert.ok(upstream.requests.length < 2, "it is taken");
      assert.equal((await rest(socket)).at(-1).status, 503);
    }
    assert.ok(counted() > 60 * 1024, `${counted()}`);
    assert.equal(service.service.meters.limits.refused("server.limits.uploads"), 2);
    first.close();
    await until(() => counted() === 0, "the end of the first socket's messages");
    upstream.fallback(says("Here."));
    second.send(large);
    assert.deepEqual(texts((await rest(second)).at(-1).response), ["Here."]);
  });

  test(`WS /v1/responses over ${transport}: of 60 large messages at once each of ten sockets holds three, and the others are refused`, async (t) => {
    const { service, upstream } = await serveUpstream(t, {}, { server: { transport } });
    upstream.fallback(stallsBeforeHead());
    const counted = () => service.service.meters.limits.used("server.limits.uploads")!;
    const sockets = await Promise.all(Array.from({ length: 10 }, () => open(t, service)));
    let most = 0;
    const watching = setInterval(() => {
      most = Math.max(most, counted());
    }, 1);
    t.after(() => clearInterval(watching));
    const large = JSON.stringify(create({ input: "x".repeat(60_000) }));
    for (const socket of sockets) for (let count = 0; count < 60; count++) socket.send(large);
    const areRefused = () => sockets.every(({ waiting }) => waiting.length === 57);
    await until(() => areRefused() || most > 31 * 62_000, "the refusals");
    assert.ok(areRefused(), `${most} bytes are held`);
    assert.ok(counted() > 30 * 60_000 && most < 31 * 62_000, `${counted()} bytes, ${most} at most`);
    for (const socket of sockets) socket.close();
    await until(() => counted() === 0, "the end of their messages");
  });
}
