/** Well-formed requests and their replies. */
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { after, before, test } from "node:test";
import { sleep } from "../support/raw-http.ts";
import { BODY_LIMIT, eventually, type Rig, request, type Subject, startRig } from "./transport-rig.ts";

export function replySuite(subject: Subject): void {
  let rig: Rig;
  before(async () => {
    rig = await startRig(await subject.create());
  });
  after(() => rig.stop());

  test("GET is answered with status, headers and a length, and the connection stays open", async () => {
    const client = await rig.connect();
    await client.send(request("GET", "/hello"));
    const { status, headers, body } = await client.reply();
    assert.equal(status, 200);
    assert.equal(body, "hello");
    assert.equal(headers["content-type"], "text/plain");
    assert.equal(headers["content-length"], "5");
    assert.equal(headers.connection, undefined);
    assert.equal(headers["keep-alive"], undefined);
    assert.equal(headers.server, undefined);
    await client.send(request("GET", "/bytes"));
    const [, second] = await client.replies(2);
    assert.equal(second!.body, "hi");
    assert.equal(client.isClosed, false);
    client.close();
  });

  test("HEAD has the head of GET, its content-length too, and no body", async () => {
    const client = await rig.connect();
    await client.send(request("HEAD", "/hello"), request("HEAD", "/silent"), request("GET", "/hello"));
    await client.until((received) => received.endsWith("hello"));
    assert.match(client.received, /content-length: 5\r\n(?:[^\r]+\r\n)*\r\nHTTP\/1.1 200 OK\r\n/i);
    assert.equal(client.received.split("hello").length, 2, "one body only");
    client.close();
  });

  test("replies without a body: 204 has no content-length, 200 says 0", async () => {
    assert.equal((await rig.ask(request("GET", "/empty"))).headers["content-length"], undefined);
    assert.equal((await rig.ask(request("GET", "/nothing"))).headers["content-length"], "0");
    assert.equal((await rig.ask(request("GET", "/begun-empty"))).body, "");
  });

  test("the request id and repeated headers of a reply are written", async () => {
    const client = await rig.connect();
    await client.send(request("GET", "/named"));
    const { headers } = await client.reply();
    assert.equal(headers["x-request-id"], "id-1");
    assert.match(client.received, /set-cookie: a=1\r\nset-cookie: b=2\r\n/i);
    client.close();
  });

  test("path and query arrive as they were sent, still percent-encoded", async () => {
    const { body } = await rig.ask(request("GET", "/a%2Fb/%E2%82%AC//..;x?q=%20+&q=2?3"));
    const seen = JSON.parse(body);
    assert.equal(seen.path, "/a%2Fb/%E2%82%AC//..;x");
    assert.equal(seen.query, "q=%20+&q=2?3");
    assert.equal(JSON.parse((await rig.ask(request("GET", "/x"))).body).query, "");
  });

  test("headers are read by lower-case name, repeated ones joined; an absent one is empty", async () => {
    const { body } = await rig.ask(request("GET", "/headers", ["X-One: a", "Accept:  */* ", "x-one: b"]));
    const [all, one] = JSON.parse(body);
    assert.equal(all["x-one"], "a, b");
    assert.equal(one, "a, b");
    assert.equal(all.accept, "*/*");
    assert.equal(all.host, "test");
    const [, none] = JSON.parse((await rig.ask(request("GET", "/headers"))).body);
    assert.equal(none, "");
  });

  test("the head cannot be read once dispatch has returned", async () => {
    const client = await rig.connect();
    await client.send(request("GET", "/hang"));
    await eventually(() => rig.log.at(-1) === "GET /hang", "dispatch");
    if (subject.name === "uws") assert.throws(() => rig.last.header("host"), /during dispatch only/);
    client.close();
  });

  test("the peer's address is plain IPv4 text", async () => {
    assert.equal((await rig.ask(request("GET", "/address"))).body, "127.0.0.1");
  });

  test("POST: a body arrives whole, by length and chunked, in one piece or many", async () => {
    const whole = await rig.ask(request("POST", "/echo", ["Content-Length: 5"], "hällo".slice(0, 5)));
    assert.equal(JSON.parse(whole.body).length, 5);
    const pieces = await rig.ask(request("POST", "/echo", ["Content-Length: 6"], "ab"), "cd", "ef");
    assert.equal(JSON.parse(pieces.body).text, "abcdef");
    const chunked = request("POST", "/echo", ["Transfer-Encoding: chunked"], "3\r\nabc\r\n");
    const joined = await rig.ask(chunked, "2\r\nde\r\n", "0\r\n\r\n");
    assert.equal(JSON.parse(joined.body).text, "abcde");
    assert.equal(JSON.parse((await rig.ask(request("POST", "/echo", ["Content-Length: 0"]))).body).length, 0);
  });

  test("POST: a body of exactly the limit is taken", async () => {
    const { body } = await rig.ask(
      request("POST", "/echo", [`Content-Length: ${BODY_LIMIT}`]),
      Buffer.alloc(BODY_LIMIT, createHash("sha1").update("x").digest("hex")),
    );
    assert.equal(JSON.parse(body).length, BODY_LIMIT);
  });

  test("POST: a reply that comes without reading a small body leaves the connection usable", async () => {
    const client = await rig.connect();
    await client.send(request("POST", "/missing", ["Content-Length: 10"], "01234"), `56789${request("GET", "/hello")}`);
    const [first, second] = await client.replies(2);
    assert.equal(first!.status, 404);
    assert.equal(second!.body, "hello");
    client.close();
  });

  test("POST: a reply that comes without reading a large or chunked body ends the connection", async () => {
    for (const header of ["Content-Length: 900000", "Transfer-Encoding: chunked"]) {
      const client = await rig.connect();
      await client.send(request("POST", "/missing", [header]));
      const { status, headers } = await client.reply();
      assert.equal(status, 404);
      assert.equal(headers.connection?.toLowerCase(), "close");
      await client.closed;
    }
  });

  test("an asynchronous reply, and one that asks for the end of the connection", async () => {
    assert.equal((await rig.ask(request("GET", "/later"))).body, "later");
    const client = await rig.connect();
    await client.send(request("GET", "/last"));
    const { body, headers } = await client.reply();
    assert.equal(body, "last");
    assert.equal(headers.connection?.toLowerCase(), "close");
    await client.closed;
  });

  test("Connection: close of the client is honoured", async () => {
    const client = await rig.connect();
    await client.send(request("GET", "/hello", ["Connection: close"]));
    assert.equal((await client.reply()).body, "hello");
    await client.closed;
  });

  test("Expect: 100-continue is answered before the body is sent", async () => {
    const client = await rig.connect();
    await client.send(request("POST", "/echo", ["Content-Length: 3", "Expect: 100-continue"]));
    await client.until((received) => received.startsWith("HTTP/1.1 100 Continue\r\n\r\n"));
    await client.send("abc");
    assert.equal(JSON.parse((await client.reply()).body).text, "abc");
    client.close();
  });

  test("an Expect that is not 100-continue is answered 417 in the envelope, and the connection ends", async () => {
    rig.log.length = 0;
    for (const expected of ["x", "200-ok"]) {
      const client = await rig.connect();
      await client.send(request("POST", "/echo", ["Content-Length: 3", `Expect: ${expected}`], "abc"));
      const { status, headers, body } = await client.reply();
      assert.equal(status, 417, expected);
      assert.equal(headers["content-type"], "application/json");
      assert.match(body, /^\{"success":false,"error":"Expect: [^"]*100-continue[^"]*"\}$/);
      await client.closed;
    }
    assert.deepEqual(rig.log, []);
    const any = await rig.ask(request("POST", "/echo", ["Content-Length: 3", "Expect: 100-Continue"], "abc"));
    assert.equal(any.status, 200, "in any case of letters");
  });

  test("1,000 requests one after another over one connection leave no listener behind", async () => {
    const warnings: string[] = [];
    const warn = (warning: Error) => warnings.push(warning.name);
    process.on("warning", warn);
    const client = await rig.connect();
    for (let count = 1; count <= 1_000; count++) {
      const before = client.received.length;
      await client.send(
        count % 2 === 0 ? request("GET", "/hello") : request("POST", "/e", ["Content-Length: 2"], "ab"),
      );
      await client.until((received) => /hello|ab"\}/.test(received.slice(before)));
    }
    await sleep(0);
    process.off("warning", warn);
    assert.equal((await client.replies(1_000)).length, 1_000);
    assert.deepEqual(warnings, []);
    client.close();
  });
}
