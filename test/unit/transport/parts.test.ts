/** The parts that transports share: heads, body buffers, targets, addresses. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { Uploads } from "../../../core/http/exchange.ts";
import { BodyBuffer } from "../../../core/transport/body.ts";
import { Heads } from "../../../core/transport/heads.ts";
import { normalizeAddress, splitTarget } from "../../../core/transport/target.ts";

test("heads: a head is a status line and header lines, the same for each use of a list", () => {
  const heads = new Heads();
  const list = ["content-type", "text/plain", "vary", "origin"];
  for (let use = 0; use < 4; use++) {
    assert.equal(heads.get(200, list), "200 OK\r\ncontent-type: text/plain\r\nvary: origin");
    assert.equal(heads.get(404, list), "404 Not Found\r\ncontent-type: text/plain\r\nvary: origin");
  }
  assert.equal(heads.get(204, []), "204 No Content");
});

test("heads: a line break in a name or a value never becomes another header", () => {
  const heads = new Heads();
  for (const list of [
    ["x-one", "a\r\nx-two: b"],
    ["x-one", "a\nb"],
    ["x-one\r\nx-two", "a"],
    ["x-one", "a\0b"],
    ["x one", "a"],
  ]) {
    assert.throws(() => heads.get(200, list), /a name or value that HTTP does not allow/);
  }
});

test("body buffer: holds up to its limit, whatever the size of the pieces, and gives the bytes in order", () => {
  const body = new BodyBuffer(10_000);
  for (let index = 0; index < 10_000; index++) assert.equal(body.add(Uint8Array.of(index & 255)), null);
  const bytes = body.takeAll();
  assert.equal(bytes.length, 10_000);
  assert.equal(bytes[9_999], 9_999 & 255);
  assert.equal(bytes[300], 300 & 255);
  assert.equal(body.add(Uint8Array.of(1)), "too_large");
  assert.equal(new BodyBuffer(3).add(new Uint8Array(4)), "too_large");
  assert.equal(new BodyBuffer(3).takeAll().length, 0);
});

test("target: path and query are cut apart, nothing is decoded, the absolute form loses its authority", () => {
  assert.deepEqual(splitTarget("/a%2F?b=c?d"), { path: "/a%2F", query: "b=c?d" });
  assert.deepEqual(splitTarget("/a"), { path: "/a", query: "" });
  assert.deepEqual(splitTarget("http://host:1/a?b"), { path: "/a", query: "b" });
  assert.deepEqual(splitTarget("HTTP://host?b"), { path: "/", query: "b" });
  assert.equal(splitTarget("*"), null);
  assert.equal(splitTarget("host:443"), null);
});

test("addresses: an IPv4 address in IPv6 form is normalized to IPv4", () => {
  assert.equal(normalizeAddress("::ffff:10.0.0.1"), "10.0.0.1");
  assert.equal(normalizeAddress("0000:0000:0000:0000:0000:ffff:0a00:0001"), "10.0.0.1");
  assert.equal(normalizeAddress("0000:0000:0000:0000:0000:0000:0000:0001"), "0000:0000:0000:0000:0000:0000:0000:0001");
  assert.equal(normalizeAddress("192.0.2.1"), "192.0.2.1");
});

test("body buffer: takes its bytes from what all share, and gives them back when it is dropped or does not fit", () => {
  const uploads = new Uploads(10);
  const one = new BodyBuffer(8, uploads);
  assert.equal(one.add(new Uint8Array(6)), null);
  const other = new BodyBuffer(8, uploads);
  assert.deepEqual([other.refusalFor(5), other.refusalFor(4), other.refusalFor(9)], ["crowded", null, "too_large"]);
  assert.deepEqual([other.add(new Uint8Array(4)), uploads.bytes], [null, 10]);
  assert.deepEqual([other.add(new Uint8Array(1)), uploads.bytes], ["crowded", 6]);
  one.drop();
  one.drop();
  assert.equal(uploads.bytes, 0);
});
