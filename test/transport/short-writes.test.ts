/** Sockets that take less than they are given, in a process whose `send` is replaced by one that does so all the time. */
import assert from "node:assert/strict";
import { execFileSync, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { get } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { buffer } from "node:stream/consumers";
import { test } from "node:test";
import { chunksOf, wholeOf } from "../support/short-writes.ts";
import { TRANSPORTS } from "../support/transports.ts";

const hasCompiler = spawnSync("which", ["cc"]).status === 0;
const skip = !TRANSPORTS.includes("uws")
  ? "uWebSockets.js does not load on this machine"
  : hasCompiler
    ? false
    : "no cc: apt-get install gcc";

async function read(port: number, path: string): Promise<Buffer> {
  const request = get({ host: "127.0.0.1", port, path, agent: false });
  const [response] = await once(request, "response");
  return buffer(response);
}

test("uws: a reply, streamed or not, is whole when its socket takes nothing of one write and a part of another", {
  skip,
}, async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "penstock-short-writes-"));
  t.after(() => rmSync(folder, { recursive: true }));
  const library = join(folder, "short-writes.so");
  execFileSync("cc", ["-shared", "-fPIC", "-o", library, "test/support/short-writes.c", "-ldl"]);
  const server = spawn(process.execPath, ["--import", "tsx", "test/support/short-writes-server.ts"], {
    env: { ...process.env, LD_PRELOAD: library },
    stdio: ["ignore", "pipe", "inherit"],
  });
  t.after(() => server.kill("SIGKILL"));
  const [line] = await once(server.stdout, "data");
  for (let seed = 1; seed <= 10; seed++) {
    const whole = Buffer.concat(chunksOf(seed).map((chunk) => Buffer.from(chunk)));
    for (const path of ["/paced", "/at-once", "/corked"]) {
      const body = await read(Number(line), `${path}?${seed}`);
      assert.ok(body.equals(whole), `${path}, seed ${seed}: ${body.length} of ${whole.length} bytes`);
    }
    assert.equal((await read(Number(line), `/whole?${seed}`)).toString(), wholeOf(seed));
  }
});
