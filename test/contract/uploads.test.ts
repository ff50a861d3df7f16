/** `server.limits.uploads`: the bytes of request bodies in memory at once, of all requests together, on every transport. */
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { eventually } from "../support/event-reader.ts";
import { pluginFolder } from "../support/plugin-folder.ts";
import { RawClient } from "../support/raw-http.ts";
import { manifestWith, startService } from "../support/service.ts";
import { TRANSPORTS } from "../support/transports.ts";

const KIB = 1024;
const LIMITS = { body: "64KiB", uploads: "100KiB" };
const PATH = "/agents/assistant/text";

const head = (framing: string, more = "") =>
  `POST ${PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n${more}${framing}\r\n\r\n`;
const announced = (bytes: number) => head(`Content-Length: ${bytes}`);
const chunkOf = (bytes: number) => `${bytes.toString(16)}\r\n${" ".repeat(bytes)}\r\n`;

function crowded({ status, headers, body }: { status: number; headers: Record<string, string>; body: string }): void {
  assert.equal(status, 503, body);
  assert.deepEqual([headers["x-error-code"], headers["retry-after"]], ["unavailable", "1"]);
  assert.match(JSON.parse(body).error, /too many bytes are being uploaded at once/);
}

for (const transport of TRANSPORTS) {
  describe(`server.limits.uploads and POST bodies over ${transport}`, () => {
    const serve = (t: Parameters<typeof startService>[0]) =>
      startService(t, manifestWith({}, { server: { transport, limits: LIMITS } }));
    /** A client that has sent so much of a body, and stops there. */
    const holding = async (port: number, bytes: number) => {
      const client = await RawClient.open(port);
      await client.send(announced(64 * KIB) + " ".repeat(bytes));
      return client;
    };
    /** A whole body of some bytes: 400 when it was read, since it has no input. */
    const whole = async (port: number, bytes: number) => {
      const client = await RawClient.open(port);
      await client.send(`${announced(bytes)}{}${" ".repeat(bytes - 2)}`);
      const reply = await client.reply();
      client.close();
      return reply;
    };

    test("what is announced beyond limits.uploads is 503 with Retry-After before it is sent, and fits again once another has left", async (t) => {
      const { port } = await serve(t);
      const first = await holding(port, 60 * KIB);
      const client = await RawClient.open(port);
      await eventually(async () => (await whole(port, 50 * KIB)).status === 503, "the first body");
      await client.send(announced(50 * KIB));
      crowded(await client.reply());
      await client.closed;
      assert.equal((await whole(port, 20 * KIB)).status, 400, "a small one fits");
      first.close();
      await eventually(async () => (await whole(port, 50 * KIB)).status === 400, "room again");
    });

    test("a body without a length is 503 at the chunk that goes beyond limits.uploads, and its room is free again", async (t) => {
      const { port } = await serve(t);
      const first = await holding(port, 60 * KIB);
      await eventually(async () => (await whole(port, 50 * KIB)).status === 503, "the first body");
      const client = await RawClient.open(port);
      await client.send(head("Transfer-Encoding: chunked"), chunkOf(20 * KIB), chunkOf(15 * KIB), chunkOf(15 * KIB));
      crowded(await client.reply());
      await client.closed;
      assert.equal((await whole(port, 35 * KIB)).status, 400);
      first.close();
      await eventually(async () => (await whole(port, 60 * KIB)).status === 400, "room again");
    });

    test("announced lengths alone take up no room: bodies that never come keep nobody out", async (t) => {
      const { port } = await serve(t);
      const clients: RawClient[] = [];
      for (let count = 0; count < 20; count++) clients.push(await holding(port, 1));
      assert.equal((await whole(port, 60 * KIB)).status, 400);
      for (const client of clients) client.close();
    });

    test("nothing stays counted of bodies that were answered, refused, too large, malformed or left half-way", async (t) => {
      const plugins = pluginFolder(t, {
        "auth/late.mjs": `export default { kind: "auth", create: () => ({ type: "late",
          verifyToken: (token) => new Promise((done) => setTimeout(done, 20, token === "good" ? { id: "u" } : null)) }) };`,
      });
      const manifest = manifestWith(
        {},
        { server: { transport, limits: LIMITS }, auth: { mode: "authNext", provider: { use: "late" } } },
      );
      const { port } = await startService(t, manifest, { plugins: [plugins], env: { NODE_ENV: "production" } });
      const ask = async (token: string, framing: string, ...pieces: string[]) => {
        const client = await RawClient.open(port);
        await client.send(head(framing, `Authorization: Bearer ${token}\r\n`), ...pieces);
        if (pieces.length === 0) return client.close();
        const { status } = await client.reply();
        client.close();
        return status;
      };
      const large = `{"input":"${"x".repeat(40 * KIB)}"}`;
      const length = `Content-Length: ${large.length}`;
      for (let round = 0; round < 4; round++) {
        assert.equal(await ask("good", length, large), 200);
        assert.equal(await ask("good", length, large.slice(0, 20_000), large.slice(20_000)), 200);
        assert.equal(await ask("bad", length, large), 401);
        assert.equal(await ask("bad", length, large.slice(0, 20_000)), 401);
        assert.equal(await ask("good", "Transfer-Encoding: chunked", chunkOf(40 * KIB), chunkOf(40 * KIB)), 413);
        const left = await RawClient.open(port);
        await left.send(head(length, "Authorization: Bearer good\r\n"), large.slice(0, 30_000));
        left.close();
        const malformed = await RawClient.open(port);
        await malformed.send(
          head("Transfer-Encoding: chunked", "Authorization: Bearer good\r\n"),
          chunkOf(30 * KIB),
          "zz\r\n",
        );
        await malformed.closed;
      }
      await eventually(async () => (await ask("good", length, large)) === 200, "room");
      const two = await Promise.all([ask("good", length, large), ask("good", length, large)]);
      assert.deepEqual(two, [200, 200]);
    });
  });
}
