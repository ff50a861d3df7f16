/** Malformed and hostile HTTP: whatever the answer, no smuggled request may be dispatched. */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { type RawClient, sleep } from "../support/raw-http.ts";
import { BODY_LIMIT, eventually, HEAD_LIMIT, type Rig, request, type Subject, startRig } from "./transport-rig.ts";

const EVIL = "GET /evil HTTP/1.1\r\nHost: test\r\n\r\n";
const post = (headers: string[], body = "") => request("POST", "/echo", headers, body);
const get = (headers: string[]) => request("GET", "/hello", headers);

/** Requests that a strict parser refuses. Behind each, in the same bytes, waits what must never be dispatched. */
const REFUSED: Record<string, string> = {
  "two differing Content-Lengths": post(["Content-Length: 5", "Content-Length: 50"], "01234"),
  "two differing Content-Lengths, the shorter one last": post(["Content-Length: 50", "Content-Length: 5"], "01234"),
  "three Content-Lengths of which one differs": post(
    ["Content-Length: 5", "Content-Length: 5", "Content-Length: 6"],
    "01234",
  ),
  "an empty Content-Length before a real one": post(["Content-Length: ", "Content-Length: 35"]),
  "a list of Content-Lengths": post(["Content-Length: 5, 5"], "01234"),
  "a signed Content-Length": post(["Content-Length: +5"], "01234"),
  "a negative Content-Length": post(["Content-Length: -5"], "01234"),
  "a hexadecimal Content-Length": post(["Content-Length: 0x5"], "01234"),
  "a Content-Length beyond all numbers": post(["Content-Length: 99999999999999999999999"], "01234"),
  "Content-Length with Transfer-Encoding": post(["Content-Length: 5", "Transfer-Encoding: chunked"], "0\r\n\r\n"),
  "Transfer-Encoding with Content-Length": post(["Transfer-Encoding: chunked", "Content-Length: 5"], "0\r\n\r\n"),
  "a Transfer-Encoding other than chunked": post(["Transfer-Encoding: gzip"], "0\r\n\r\n"),
  "an empty Transfer-Encoding with Content-Length": post(["Transfer-Encoding: ", "Content-Length: 5"], "0\r\n\r\n"),
  "two Transfer-Encodings": post(["Transfer-Encoding: identity", "Transfer-Encoding: chunked"], "0\r\n\r\n"),
  "a space before the colon of Content-Length": post(["Content-Length : 5"], "01234"),
  "a space before the colon of Transfer-Encoding": post(
    ["Transfer-Encoding : chunked", "Content-Length: 5"],
    "0\r\n\r\n",
  ),
  "a folded header": get(["X-One: a\r\n b"]),
  "a folded Content-Length": post(["Content-Length:\r\n 5"], "01234"),
  "NUL in a header value": get(["X-One: a\0b"]),
  "NUL in a header name": get(["X-\0One: a"]),
  "a bare CR in a header value": get(["X-One: a\rb"]),
  "a header without a colon": get(["X-One"]),
  "a request line that ends with a bare LF": "GET /hello HTTP/1.1\nHost: test\n\n",
  "a missing Host": "GET /hello HTTP/1.1\r\nAccept: */*\r\n\r\n",
  "two Hosts": get(["Host: other"]),
  "a missing version": "GET /hello\r\nHost: test\r\n\r\n",
  "a version of the future": "GET /hello HTTP/3.7\r\nHost: test\r\n\r\n",
  "a request line without a target": "GET HTTP/1.1\r\nHost: test\r\n\r\n",
  "the start of a TLS handshake": "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
  "a target that is no path": "OPTIONS * HTTP/1.1\r\nHost: test\r\n\r\n",
  "a target for tunnels": "CONNECT test:443 HTTP/1.1\r\nHost: test\r\n\r\n",
};

const head = (headers: string[]) => request("HEAD", "/hello", headers);

/** The same with a method whose replies have no body, whatever they say (RFC 9110, 9.3.2). */
const REFUSED_HEADS: Record<string, string> = {
  "two differing Content-Lengths": head(["Content-Length: 5", "Content-Length: 50"]),
  "a header without a colon": head(["X-One"]),
  "a NUL in a header": head(["X-One: a\0b"]),
  "a missing Host": "HEAD /hello HTTP/1.1\r\nAccept: */*\r\n\r\n",
  "a head over the limit": head([`X-Long: ${"a".repeat(HEAD_LIMIT)}`]),
  "an Expect that nothing fulfils": head(["Expect: x"]),
  "a bad one behind a good one": request("HEAD", "/hello", []).replace("/hello", "/empty") + head(["X-One"]),
};

export function hostileSuite(subject: Subject): void {
  let rig: Rig;
  before(async () => {
    rig = await startRig(await subject.create());
  });
  after(() => rig.stop());

  for (const [what, bytes] of Object.entries(REFUSED)) {
    test(`${what}: refused or left without an answer, and nothing behind it is dispatched`, async () => {
      rig.log.length = 0;
      for (const pieces of [[bytes + EVIL], [bytes, EVIL]]) {
        const client = await rig.connect();
        await client.send(...pieces);
        await settle(client);
        assert.match(client.received, /^(HTTP\/1.1 (4\d\d|505) [\s\S]*)?$/);
        assert.equal(client.received.split("HTTP/1.1 ").length <= 2, true, "one answer at most");
        client.close();
      }
      assert.deepEqual(rig.log, []);
    });
  }

  for (const [what, bytes] of Object.entries(REFUSED_HEADS)) {
    // The addon answers that one itself (see KNOWN_OF_UWS).
    if (subject.name === "uws" && what === "a missing Host") continue;
    test(`a HEAD that is refused has no body: ${what}`, async () => {
      const client = await rig.connect();
      await client.send(bytes);
      if (subject.name === "node") await client.until((received) => /HTTP\/1.1 4[\s\S]*\r\n\r\n$/.test(received));
      await settle(client);
      const answers = client.received.split("\r\n\r\n");
      assert.equal(answers.pop(), "", "nothing behind a head");
      for (const answer of answers) assert.match(answer, /^HTTP\/1.1 (204|4\d\d|505) /);
      if (subject.name === "node") assert.match(answers.at(-1)!, /^HTTP\/1.1 4/);
      client.close();
    });
  }

  test("a chunk size that is not a number: the body fails, and nothing behind it is dispatched", async () => {
    rig.log.length = 0;
    const client = await rig.connect();
    await client.send(`${post(["Transfer-Encoding: chunked"], "zz\r\nhello\r\n0\r\n\r\n")}${EVIL}`);
    await client.closed;
    assert.match(client.received, /^(HTTP\/1.1 400 [\s\S]*)?$/);
    assert.deepEqual(rig.log, ["POST /echo"]);
  });

  const SMUGGLED: Record<string, string[]> = {
    "a request in the place of the trailer": [`2\r\nab\r\n0\r\n${EVIL}`],
    "a request in the place of the trailer, in a segment of its own": ["2\r\nab\r\n0\r\n", EVIL],
    "a trailer, and a request in a segment of its own": [`2\r\nab\r\n0\r\n`, `X-Trailer: 1\r\n\r\n${EVIL}`],
    "a chunk without its line end": [`2\r\nab0\r\n\r\n${EVIL}`],
    "a chunk with other bytes for its line end": [`2\r\nabXX0\r\n\r\n${EVIL}`],
    "a chunk with other bytes for its line end, in segments": ["2\r\nab", "XX0\r\n\r\n", EVIL],
    "a chunk size that ends with a bare LF": [`2\nab\r\n0\r\n\r\n${EVIL}`],
  };
  for (const [what, [first = "", ...rest]] of Object.entries(SMUGGLED))
    for (const path of ["/echo", "/later"])
      test(`POST ${path}, a chunked body with ${what}: the connection ends before anything is taken for a second request`, async () => {
        // Trailers are right, and llhttp reads them; the request behind them is one.
        if (subject.name === "node" && what.startsWith("a trailer")) return;
        rig.log.length = 0;
        const client = await rig.connect();
        await client.send(request("POST", path, ["Transfer-Encoding: chunked"], first), ...rest);
        await client.closed;
        assert.deepEqual(
          rig.log.filter((line) => line !== `POST ${path}`),
          [],
          client.received,
        );
      });

  test("two equal Content-Lengths: one request, or none", async () => {
    rig.log.length = 0;
    const client = await rig.connect();
    await client.send(post(["Content-Length: 5", "Content-Length: 5"], "01234"));
    await client.reply();
    assert.match(client.received, /^HTTP\/1.1 (200|400) /);
    assert.ok(rig.log.length <= 1);
    client.close();
  });

  test("two differing Content-Lengths where nothing has followed yet: 400 with the envelope, and closed", async () => {
    const client = await rig.connect();
    await client.send(post(["Content-Length: 5", "Content-Length: 50"]));
    const { status, body } = await client.reply();
    assert.equal(status, 400);
    assert.equal(JSON.parse(body).success, false);
    await client.closed;
  });

  test("a head over the limit: 431, in one piece and in many, by one long header, many headers or a long target", async () => {
    rig.log.length = 0;
    const long = "a".repeat(HEAD_LIMIT);
    const heads = [
      get([`X-Long: ${long}`]),
      get(Array(80).fill(`X-Many: ${"b".repeat(300)}`)),
      request("GET", `/${long}`),
    ];
    for (const head of heads) {
      const whole = await rig.connect();
      await whole.send(head);
      assert.match(String((await whole.reply()).status), /^(431|414)$/);
      await whole.closed;
      const split = await rig.connect();
      await split.send(head.slice(0, 12_000), head.slice(12_000));
      await settle(split);
      assert.match(split.received, /^(HTTP\/1.1 (431|414|505) [\s\S]*)?$/);
      split.close();
    }
    assert.deepEqual(rig.log, []);
    const { status } = await rig.ask(
      get([`X-Long: ${"a".repeat(8_000)}`]).slice(0, 6_000),
      `${"a".repeat(2_030)}\r\n\r\n`,
    );
    assert.equal(status, 200, "a head below the limit passes, in two pieces too");
  });

  test("a declared body over the limit: 413 before it is sent, and closed", async () => {
    const client = await rig.connect();
    await client.send(post([`Content-Length: ${BODY_LIMIT + 1}`]));
    const { status, headers } = await client.reply();
    assert.equal(status, 413);
    assert.equal(headers.connection?.toLowerCase(), "close");
    await client.closed;
  });

  test("a body over the limit while it arrives: 413 and closed, with little memory", async () => {
    const client = await rig.connect();
    const before = process.memoryUsage();
    await client.send(post(["Transfer-Encoding: chunked"]));
    const chunk = Buffer.concat([Buffer.from("10000\r\n"), Buffer.alloc(0x10000, "x"), Buffer.from("\r\n")]);
    let sent = 0;
    while (!client.isClosed && sent < 64 * BODY_LIMIT) {
      if (client.socket.writableLength < 4 * chunk.length) {
        client.socket.write(chunk);
        sent += chunk.length;
      }
      await new Promise(setImmediate);
    }
    await client.closed;
    const used = process.memoryUsage();
    assert.match(client.received, /^HTTP\/1.1 413 /);
    assert.ok(sent < 32 * BODY_LIMIT, `${sent} bytes were taken`);
    const grown = used.arrayBuffers - before.arrayBuffers;
    assert.ok(grown < 8 * BODY_LIMIT, `${grown} bytes were kept`);
  });

  test("a body of one-byte chunks costs about its size", async () => {
    const client = await rig.connect();
    const count = 200_000;
    const before = process.memoryUsage();
    await client.send(post(["Transfer-Encoding: chunked"], "1\r\nx\r\n".repeat(count)), "0\r\n\r\n");
    const { body } = await client.reply();
    assert.equal(JSON.parse(body).length, count);
    const grown = process.memoryUsage().arrayBuffers - before.arrayBuffers;
    assert.ok(grown < 30 * BODY_LIMIT, `${grown} bytes`);
    client.close();
  });

  test("a truncated body: the failure is reported once and nothing is dispatched", async () => {
    rig.log.length = 0;
    const problems = rig.problems.length;
    const client = await rig.connect();
    await client.send(post(["Content-Length: 100"], "only this"));
    await eventually(() => rig.log.length === 1, "dispatch");
    client.socket.end();
    await client.closed;
    await eventually(() => rig.problems.length === problems + 1, "failed callback");
    await sleep(20);
    assert.equal(rig.problems.length, problems + 1);
    assert.match(rig.problems.at(-1)!, /aborted|malformed/);
    assert.deepEqual(rig.log, ["POST /echo"]);
  });

  test("after all hostile requests the service still answers", async () => {
    assert.equal((await rig.ask(get([]))).body, "hello");
  });
}

/** Waits for the end of the connection or of an answer, or as long as an answer could reasonably take. */
async function settle(client: RawClient): Promise<void> {
  await Promise.race([client.closed, client.until((received) => received !== "", 150).catch(() => {})]);
  await Promise.race([client.closed, sleep(40)]);
}
