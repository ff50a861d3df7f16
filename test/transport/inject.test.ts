import assert from "node:assert/strict";
import { test } from "node:test";
import type { Exchange } from "../../core/http/exchange.ts";
import { inject } from "../support/inject.ts";

const TEXT = ["content-type", "text/plain"];

test("inject: method, target, headers and body arrive as a network transport would give them", async () => {
  const reply = await inject(
    (exchange) => {
      const headers = exchange.headers();
      const { method, path, query } = exchange;
      exchange.readBody(
        100,
        (body) => {
          exchange.requestId = "id-1";
          exchange.reply(201, TEXT, JSON.stringify([method, path, query, headers, Buffer.from(body).toString()]));
        },
        () => assert.fail("the body fits"),
      );
    },
    { path: "/a%2Fb?c=d", headers: { "X-One": "1" }, body: { n: 1 } },
  );
  assert.equal(reply.status, 201);
  assert.equal(reply.headers["x-request-id"], "id-1");
  assert.deepEqual(reply.json(), [
    "POST",
    "/a%2Fb",
    "c=d",
    { "x-one": "1", host: "localhost", "content-type": "application/json", "content-length": "7" },
    '{"n":1}',
  ]);
});

test("inject: a body over the limit fails with too_large", async () => {
  const reply = await inject(
    (exchange) =>
      exchange.readBody(
        3,
        () => assert.fail("too large"),
        (problem) => exchange.reply(413, TEXT, problem),
      ),
    { path: "/", body: "four" },
  );
  assert.equal(reply.status, 413);
  assert.equal(reply.text(), "too_large");
});

test("inject: HEAD has the head only", async () => {
  const reply = await inject((exchange) => exchange.reply(200, TEXT, "hello"), { method: "HEAD", path: "/" });
  assert.equal(reply.headers["content-length"], "5");
  assert.equal(reply.body.length, 0);
});

test("inject: a stream is collected, and each chunk is seen as it is written", async () => {
  const chunks: string[] = [];
  const reply = await inject(
    (exchange) => {
      exchange.begin(200, TEXT);
      exchange.write("one,");
      setImmediate(() => {
        exchange.write(Buffer.from("two"));
        exchange.end();
      });
    },
    { path: "/", onChunk: (chunk) => chunks.push(chunk.toString()) },
  );
  assert.equal(reply.text(), "one,two");
  assert.deepEqual(chunks, ["one,", "two"]);
});

test("inject: the signal is the client leaving", async () => {
  const client = new AbortController();
  let left = 0;
  let seen: Exchange | undefined;
  const waiting = inject(
    (exchange) => {
      seen = exchange;
      exchange.onAbort(() => left++);
    },
    { path: "/", signal: client.signal },
  );
  client.abort();
  await assert.rejects(waiting, /aborted/);
  assert.equal(left, 1);
  assert.equal(seen!.closed, true);
  seen!.reply(200, [], "too late");
});

test("inject: the head cannot be read once dispatch has returned", async () => {
  let late: unknown;
  await inject(
    (exchange) => {
      setImmediate(() => {
        try {
          exchange.header("host");
        } catch (error) {
          late = error;
        }
        exchange.reply(200, [], null);
      });
    },
    { path: "/" },
  );
  assert.match(String(late), /during dispatch only/);
});

test("inject: a destroyed exchange rejects", async () => {
  await assert.rejects(
    inject((exchange) => exchange.destroy(), { path: "/" }),
    /the connection was cut/,
  );
});
