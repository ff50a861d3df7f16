/** Sockets that take less than they are given, in a process whose `send` is replaced by one that does so all the time. */
import assert from "node:assert/strict";
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { get } from "node:http";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { buffer } from "node:stream/consumers";
import { after, before, describe, test } from "node:test";
import { programMissing } from "../support/programs.ts";
import { chunksOf, wholeOf } from "../support/short-writes.ts";
import { TRANSPORTS } from "../support/transports.ts";

const skip = TRANSPORTS.includes("uws") ? programMissing("cc") : "uWebSockets.js does not load on this machine";

async function read(port: number, path: string): Promise<Buffer> {
  const request = get({ host: "127.0.0.1", port, path, agent: false });
  const [response] = await once(request, "response");
  return buffer(response);
}

describe("uws, over sockets that take nothing of one write and a part of another", { skip }, () => {
  const folder = mkdtempSync(join(tmpdir(), "penstock-short-writes-"));
  let server: ChildProcess;
  let port: number;
  before(async () => {
    const library = join(folder, "short-writes.so");
    execFileSync("cc", ["-shared", "-fPIC", "-o", library, "test/support/short-writes.c", "-ldl"]);
    server = spawn(process.execPath, ["--import", "tsx", "test/support/short-writes-server.ts"], {
      env: { ...process.env, LD_PRELOAD: library },
      stdio: ["ignore", "pipe", "inherit"],
    });
    const [line] = await once(server.stdout!, "data");
    port = Number(line);
  });
  after(() => {
    server.kill("SIGKILL");
    rmSync(folder, { recursive: true });
  });

  test("a reply is whole: streamed at once, corked, or as its reader takes it, or of a given length", async () => {
    for (let seed = 1; seed <= 10; seed++) {
      const whole = Buffer.concat(chunksOf(seed).map((chunk) => Buffer.from(chunk)));
      for (const path of ["/paced", "/at-once", "/corked"]) {
        const body = await read(port, `${path}?${seed}`);
        assert.ok(body.equals(whole), `${path}, seed ${seed}: ${body.length} of ${whole.length} bytes`);
      }
      assert.equal((await read(port, `/whole?${seed}`)).toString(), wholeOf(seed));
    }
  });

  test("requests that are pipelined get their replies or are cut off, and end nobody else's", async () => {
    const requests = "GET /small HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(8);
    for (let count = 0; count < 50; count++) {
      const client = connect(port, "127.0.0.1").end(requests);
      await buffer(client).catch(() => {});
    }
    assert.equal((await read(port, "/small")).length, 5_000);
  });
});
