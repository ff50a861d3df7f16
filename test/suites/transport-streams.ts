/** Streamed replies, slow readers and peers that leave. */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { sleep } from "../support/raw-http.ts";
import { CHUNK, eventually, fill, type Rig, request, type Subject, startRig } from "./transport-rig.ts";

export function streamSuite(subject: Subject): void {
  let rig: Rig;
  before(async () => {
    rig = await startRig(await subject.create());
  });
  after(() => rig.stop());

  const begin = async (path: string) => {
    const client = await rig.connect();
    const before = rig.log.length;
    await client.send(request("GET", path));
    await eventually(() => rig.log.length > before, "dispatch");
    return { client, exchange: rig.last };
  };

  test("a stream is chunked, carries the request id, and leaves the connection usable", async () => {
    const client = await rig.connect();
    await client.send(request("GET", "/stream"));
    const { headers, body } = await client.reply();
    assert.equal(headers["transfer-encoding"], "chunked");
    assert.equal(headers["content-length"], undefined);
    assert.equal(headers["x-request-id"], "id-2");
    assert.equal(body, "one,two,three");
    await client.send(request("GET", "/hello"));
    assert.equal((await client.replies(2))[1]!.body, "hello");
    client.close();
  });

  for (const path of ["/silent", "/silent-corked"]) {
    test(`the head of an event stream goes out before its first event (${path.slice(1)})`, async () => {
      const { client, exchange } = await begin(path);
      await client.until((received) => received.includes("\r\n\r\n"));
      assert.match(client.received, /^HTTP\/1.1 200 OK\r\n/);
      assert.doesNotMatch(client.received, /data/);
      exchange.write("data: 1\n\n");
      exchange.end();
      // What may have been sent to get the head out is a comment, which event streams ignore.
      assert.match((await client.reply()).body, /^(:\n\n)?data: 1\n\n$/);
      client.close();
    });
  }

  test("a reader that is behind: write says so and has taken the chunk, drained settles when it has caught up", async () => {
    const { client, exchange } = await begin("/silent");
    client.socket.pause();
    const { sent, waiting } = await fill(exchange);
    assert.ok(exchange.buffered > 0);
    client.socket.resume();
    await waiting;
    assert.equal(exchange.buffered, 0);
    exchange.end();
    const { body } = await client.reply();
    assert.equal(body.replace(/^:\n\n/, "").length, sent * CHUNK.length);
    client.close();
  });

  test("a reader that was behind gets all that was written, though nothing more is written", async () => {
    const { client, exchange } = await begin("/silent");
    client.socket.pause();
    const { sent, waiting } = await fill(exchange);
    const MORE = 20;
    for (let more = 0; more < MORE; more++) exchange.write(CHUNK);
    assert.ok(exchange.buffered >= CHUNK.length);
    client.socket.resume();
    await waiting;
    const expected = (sent + MORE) * CHUNK.length;
    await client.until((received) => received.length > expected);
    exchange.end();
    assert.equal((await client.reply()).body.replace(/^:\n\n/, "").length, expected);
    client.close();
  });

  test("a reader that is behind and leaves: drained settles, onAbort is called once, the rest is a no-op", async () => {
    const { client, exchange } = await begin("/silent");
    client.socket.pause();
    const { waiting } = await fill(exchange);
    const before = rig.aborted.length;
    client.close();
    await waiting;
    assert.equal(exchange.closed, true);
    assert.equal(exchange.buffered, 0);
    assert.equal(exchange.write("more"), true);
    exchange.cork(() => exchange.write("more"));
    exchange.end();
    exchange.reply(200, [], null);
    exchange.destroy();
    await exchange.drained();
    await sleep(20);
    assert.equal(rig.aborted.length, before + 1);
  });

  test("a client that leaves before the reply: onAbort is called once", async () => {
    const { client, exchange } = await begin("/hang");
    const before = rig.aborted.length;
    client.close();
    await eventually(() => rig.aborted.length > before, "onAbort");
    assert.equal(exchange.closed, true);
    exchange.reply(200, [], "too late");
    await sleep(20);
    assert.deepEqual(rig.aborted.slice(before), ["GET /hang"]);
  });

  test("a client that leaves in mid-stream: onAbort is called once", async () => {
    const { client } = await begin("/silent");
    await client.until((received) => received.includes("\r\n\r\n"));
    const before = rig.aborted.length;
    client.close();
    await eventually(() => rig.aborted.length > before, "onAbort");
    await sleep(20);
    assert.deepEqual(rig.aborted.slice(before), ["GET /silent"]);
  });

  test("a client that leaves after the reply: onAbort is not called", async () => {
    const before = rig.aborted.length;
    await rig.ask(request("GET", "/later"));
    await sleep(50);
    assert.equal(rig.aborted.length, before);
  });

  for (const path of ["/break", "/break-corked"]) {
    test(`destroy cuts the connection (${path.slice(1)})`, async () => {
      const client = await rig.connect();
      await client.send(request("GET", path));
      await client.closed;
      assert.doesNotMatch(client.received, /0\r\n\r\n$/);
      assert.equal((await rig.ask(request("GET", "/hello"))).body, "hello");
    });
  }
}
