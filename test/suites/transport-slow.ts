/** Heads and bodies that never end are cut off; readers may be slow. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { type RawClient, sleep } from "../support/raw-http.ts";
import { CHUNK, eventually, fill, request, type Subject, startRig } from "./transport-rig.ts";

/** Milliseconds for heads and bodies; uws has a limit of its own, of about twelve seconds. */
const LIMIT = 300;
/** Milliseconds for readers. */
const STALL = 300;
/** Longer than the addon of uws waits for anybody. */
const PAUSE = 14_000;
const SMALL = "z".repeat(4_000);
/** More than sockets of the kernel hold. */
const LARGE_REPLY = 32 * 1024 * 1024;

export function slowSuite(subject: Subject): void {
  test("heads, bodies and readers that make no progress are cut; one that waits for its reply is not", async (t) => {
    const refused: string[] = [];
    const rig = await startRig(await subject.create(LIMIT), { stall: STALL, refused: (limit) => refused.push(limit) });
    t.after(() => rig.stop());
    const every = subject.name === "uws" ? 500 : 50;
    const starts = [
      "GET /hello HTTP/1.1\r\nHost: test\r\nX-Slow: ",
      request("POST", "/echo", ["Content-Length: 100000"]),
      request("POST", "/echo", ["Transfer-Encoding: chunked"], "fff\r\n"),
    ];
    const waiting = await rig.connect();
    await waiting.send(request("GET", "/hang"));
    const stalled = await rig.connect();
    await stalled.send(request("GET", "/silent"));
    await eventually(() => rig.log.at(-1) === "GET /silent", "dispatch");
    stalled.socket.pause();
    const { waiting: drained } = await fill(rig.last);
    const clients = await Promise.all(starts.map(() => rig.connect()));
    await Promise.all(clients.map((client, index) => client.send(starts[index]!)));
    const started = Date.now();
    while (clients.some((client) => !client.isClosed)) {
      assert.ok(Date.now() - started < 60_000, "cut in the end");
      for (const client of clients) if (!client.isClosed) client.socket.write("a");
      await sleep(every);
    }
    for (const client of clients) assert.match(client.received, /^(HTTP\/1.1 4(00|08) [\s\S]*)?$/);
    await drained;
    assert.deepEqual(rig.aborted.includes("GET /silent"), true);
    assert.equal(waiting.isClosed, false);
    assert.deepEqual(refused, ["server.limits.stall"], "of the reader; the others never had a whole request");
  });

  test("readers that take nothing for fourteen seconds lose nothing: a stream, one that has ended, one behind by little, a large reply", async (t) => {
    const rig = await startRig(await subject.create());
    t.after(() => rig.stop());
    const begin = async (path: string) => {
      const client = await rig.connect();
      const before = rig.log.length;
      await client.send(request("GET", path));
      await eventually(() => rig.log.length > before, "dispatch");
      client.socket.pause();
      return { client, exchange: rig.last };
    };
    const waiting = await begin("/silent");
    const filled = await fill(waiting.exchange);
    const ended = await begin("/silent");
    const last = await fill(ended.exchange);
    ended.exchange.write("the end");
    ended.exchange.end();
    const little = await begin("/silent");
    let small = 0;
    for (let taken = true; taken; small++) taken = little.exchange.write(SMALL);
    // One write less: the last may have failed at the end of its cork, which the addon of uws tells nobody.
    const silent = await begin("/silent");
    for (let count = 1; count < small; count++) silent.exchange.write(SMALL);
    const large = await begin("/hang");
    large.exchange.reply(200, ["content-type", "text/plain"], Buffer.alloc(LARGE_REPLY, "y"));
    await sleep(PAUSE);
    assert.deepEqual(rig.aborted, []);
    for (const { client } of [waiting, ended, little, silent, large]) client.socket.resume();
    await filled.waiting;
    waiting.exchange.end();
    await little.exchange.drained();
    little.exchange.end();
    silent.exchange.end();
    const lengthOf = async ({ client }: { client: RawClient }) => {
      await client.until((received) => received.endsWith("\r\n0\r\n\r\n"), 60_000);
      return (await client.reply()).body.replace(/^:\n\n/, "").length;
    };
    assert.equal(await lengthOf(waiting), filled.sent * CHUNK.length);
    assert.equal(await lengthOf(ended), last.sent * CHUNK.length + "the end".length);
    assert.equal(await lengthOf(little), small * SMALL.length);
    assert.equal(await lengthOf(silent), (small - 1) * SMALL.length);
    await large.client.until((received) => received.length >= LARGE_REPLY, 60_000);
    assert.equal((await large.client.reply()).body.length, LARGE_REPLY);
    // The connection of a reply that was waited for goes on.
    await large.client.send(request("GET", "/hello"));
    assert.equal((await large.client.replies(2))[1]!.body, "hello");
  });

  test("a reader that takes nothing for as long as it may is cut, of a stream and of a large reply", async (t) => {
    const rig = await startRig(await subject.create(), { stall: STALL });
    t.after(() => rig.stop());
    const stream = await rig.connect();
    await stream.send(request("GET", "/silent"));
    await eventually(() => rig.log.at(-1) === "GET /silent", "dispatch");
    stream.socket.pause();
    await Promise.race([fill(rig.last), eventually(() => rig.aborted.length > 0, "onAbort")]);
    await eventually(() => rig.aborted.length > 0, "onAbort");
    assert.deepEqual(rig.aborted, ["GET /silent"]);
    const large = await rig.connect();
    await large.send(request("GET", "/hang"));
    await eventually(() => rig.log.at(-1) === "GET /hang", "dispatch");
    large.socket.pause();
    rig.last.reply(200, [], Buffer.alloc(LARGE_REPLY));
    await sleep(4_000);
    large.socket.resume();
    await large.closed;
    assert.ok(large.received.length < LARGE_REPLY);
  });
}
