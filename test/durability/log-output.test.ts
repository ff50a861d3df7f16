/** A log that cannot be written: requests go on, the loss is counted, and told when there is a way again. */
import assert from "node:assert/strict";
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, constants, mkdtempSync, openSync, readFileSync, readSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { PENSTOCK } from "../support/command-line.ts";
import { pluginFolder } from "../support/plugin-folder.ts";
import { onPort } from "../support/ports.ts";

/** `GET /say/:count` logs as many lines of about 1 KiB, numbered over all requests. */
const FILES = {
  "service.yaml": JSON.stringify({
    plugins: ["./plugins"],
    routes: [{ use: "say" }, { use: "shut" }],
    logs: { level: "info" },
  }),
  "plugins/routes/say.mjs": `let number = 0;
    export default { kind: "route", name: "say", method: "GET", path: "/say/:count", handle: ({ params }, { logger }) => {
      for (let count = 0; count < Number(params.count); count++) logger.info({ number: number++ }, "-".repeat(900));
      return number; } };`,
  // What is opened next has the free number: something that cannot be written to.
  "plugins/routes/shut.mjs": `import { closeSync, openSync } from "node:fs";
    const handle = () => { closeSync(1); return openSync("/dev/null", "r"); };
    export default { kind: "route", name: "shut", method: "GET", path: "/shut", handle };`,
};

interface Service {
  readonly child: ChildProcess;
  stderr(): string;
  get(path: string): Promise<string>;
  say(count: number): Promise<number>;
  lost(): Promise<number>;
  /** Resolves when `holds` gives a value. */
  eventually<T>(holds: () => T | null | Promise<T | null>): Promise<T>;
  stop(): Promise<number | null>;
}

/**
 * Told its port: where it serves cannot be read here.
 *
 * @param output a file descriptor that becomes the standard output; it is closed here
 */
async function serveInto(t: TestContext, output: number): Promise<Service> {
  const folder = pluginFolder(t, FILES);
  const service = await onPort((port) => serveOn(port, t, output, folder));
  closeSync(output);
  return service;
}

async function serveOn(port: number, t: TestContext, output: number, folder: string): Promise<Service> {
  const url = `http://127.0.0.1:${port}`;
  const args = [PENSTOCK, "serve", "--port", String(port), "--host", "127.0.0.1"];
  const child = spawn(process.execPath, args, { cwd: folder, stdio: ["ignore", output, "pipe"] });
  const closed = once(child, "close");
  let stderr = "";
  child.stderr!.setEncoding("utf8").on("data", (text) => {
    stderr += text;
  });
  const stop = async () => {
    child.kill("SIGTERM");
    await closed;
    return child.exitCode;
  };
  t.after(async () => {
    child.kill("SIGKILL");
    await closed;
  });
  const eventually: Service["eventually"] = async (holds) => {
    for (let tries = 0; tries < 6_000; tries++) {
      assert.equal(child.exitCode, null, stderr);
      const value = await holds();
      if (value !== null) return value;
      await sleep(100);
    }
    throw new Error(`waited long\n${stderr}`);
  };
  const get = async (path: string) => (await fetch(url + path)).text();
  await eventually(() => get("/healthz").catch(() => null));
  return {
    child,
    get,
    stderr: () => stderr,
    say: async (count) => (JSON.parse(await get(`/say/${count}`)) as { data: number }).data,
    lost: async () => Number(/^penstock_log_lines_lost_total (\d+)$/m.exec(await get("/metrics"))?.[1]),
    eventually,
    stop,
  };
}

for (const [code, file] of [
  ["ENOSPC", "/dev/full"],
  // Nothing is mapped there, neither in this process nor in any other.
  ["EIO", "/proc/self/mem"],
] as const) {
  test(`a service whose standard output gives ${code} on every write starts, answers, counts the lines that it loses, and stops in order`, async (t) => {
    const service = await serveInto(t, openSync(file, "w"));
    const before = await service.lost();
    assert.equal(await service.say(5), 5);
    assert.equal(await service.lost(), before + 5);
    assert.equal(await service.say(1), 6);
    assert.equal(await service.stop(), 0);
    assert.doesNotMatch(service.stderr(), new RegExp(code));
  });
}

test("a service whose standard output was closed in the process goes on, and counts the lines that it loses", async (t) => {
  const service = await serveInto(t, openSync("/dev/null", "w"));
  assert.equal(await service.lost(), 0);
  assert.equal(await service.get("/shut"), '{"success":true,"data":1}');
  assert.equal(await service.say(3), 3);
  assert.equal(await service.lost(), 3);
  assert.equal(await service.stop(), 0);
});

const fifo = (t: TestContext): string => {
  const path = join(pluginFolder(t, {}), "log");
  execFileSync("mkfifo", [path]);
  return path;
};

/** What there is to read now. */
function readAll(descriptor: number): string {
  const bytes = Buffer.alloc(1024 * 1024);
  let text = "";
  try {
    for (let count = readSync(descriptor, bytes); count > 0; count = readSync(descriptor, bytes))
      text += bytes.toString("utf8", 0, count);
  } catch (error) {
    assert.equal((error as NodeJS.ErrnoException).code, "EAGAIN");
  }
  return text;
}

interface Line {
  msg: string;
  number?: number;
  lost?: number;
  code?: string;
}

/** Complete lines of JSON. */
const linesOf = (text: string): Line[] =>
  text
    .split("\n")
    .slice(0, -1)
    .filter((line) => line.startsWith("{"))
    .map((line) => JSON.parse(line));

/** Every line is there, or one that stands in its place says that it is lost. */
function checkNumbers(lines: readonly Line[], end: number): number {
  let next = 0;
  let lost = 0;
  for (const { number, lost: missing } of lines) {
    if (missing !== undefined) {
      next += missing;
      lost += missing;
    } else if (number !== undefined) assert.equal(number, next++);
  }
  assert.equal(next, end);
  return lost;
}

test("a service whose log is a pipe goes on when its reader leaves, and tells the next reader how many lines are lost", async (t) => {
  const path = fifo(t);
  const first = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  const service = await serveInto(t, openSync(path, constants.O_WRONLY));
  assert.equal(await service.say(3), 3);
  let read = readAll(first);
  closeSync(first);
  assert.equal(await service.say(4), 7);
  assert.equal(await service.lost(), 4);
  const second = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  t.after(() => closeSync(second));
  // Nothing is logged meanwhile.
  read += await service.eventually(() => readAll(second) || null);
  const told = linesOf(read).at(-1)!;
  assert.deepEqual([told.lost, told.code, told.msg], [4, "EPIPE", "4 lines of the log could not be written: EPIPE"]);
  assert.equal(await service.say(2), 9);
  read += await service.eventually(() => readAll(second) || null);
  assert.equal(checkNumbers(linesOf(read), 9), 4);
  assert.equal(await service.lost(), 4);
});

test("a service whose log is a pipe that nobody reads answers, keeps a bounded number of lines, and counts the others", async (t) => {
  const path = fifo(t);
  const reader = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  t.after(() => closeSync(reader));
  const service = await serveInto(t, openSync(path, constants.O_WRONLY | constants.O_NONBLOCK));
  // More than the pipe holds: all of them wait for the reader.
  assert.equal(await service.say(500), 500);
  assert.equal(await service.lost(), 0);
  // More than may wait.
  assert.equal(await service.say(9_500), 10_000);
  const lost = await service.lost();
  assert.ok(lost > 1_000 && lost < 9_000, String(lost));
  let read = "";
  await service.eventually(() => {
    read += readAll(reader);
    return read.includes('"lost":') || null;
  });
  assert.equal(await service.say(1), 10_001);
  await service.eventually(() => {
    read += readAll(reader);
    return read.includes('"number":10000,') || null;
  });
  assert.equal(checkNumbers(linesOf(read), 10_001), lost);
});

test("the last lines of a service that stops are written, although its reader is slow", async (t) => {
  const path = fifo(t);
  const reader = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  t.after(() => closeSync(reader));
  const service = await serveInto(t, openSync(path, constants.O_WRONLY | constants.O_NONBLOCK));
  assert.equal(await service.say(200), 200);
  const ended = service.stop();
  let read = "";
  while (service.child.exitCode === null) {
    read += readAll(reader);
    await sleep(10);
  }
  read += readAll(reader);
  assert.equal(await ended, 0);
  assert.equal(checkNumbers(linesOf(read), 200), 0);
  assert.ok(linesOf(read).some(({ msg }) => msg === "stopping"));
});

/** A file system of 256 KiB, or null where mounting is not permitted. */
function smallDisk(t: TestContext): string | null {
  const path = mkdtempSync(join(tmpdir(), "penstock-disk-"));
  try {
    execFileSync("mount", ["-t", "tmpfs", "-o", "size=256k", "tmpfs", path], { stdio: "pipe" });
  } catch (error) {
    console.error(`no file system can be mounted here: ${(error as Error).message}`);
    return null;
  }
  t.after(() => {
    execFileSync("umount", ["--lazy", path]);
    rmSync(path, { recursive: true });
  });
  return path;
}

test("a service whose disk for the log is full goes on, and says in the log how many lines are lost once there is room", async (t) => {
  const disk = smallDisk(t);
  if (disk === null) return t.skip("mounting is not permitted");
  const log = join(disk, "log");
  const other = join(disk, "other");
  writeFileSync(other, Buffer.alloc(128 * 1024));
  const service = await serveInto(t, openSync(log, "a"));
  assert.equal(await service.say(400), 400);
  const lost = await service.lost();
  assert.ok(lost > 200, String(lost));
  rmSync(other);
  // Nothing is logged meanwhile.
  await service.eventually(() => readFileSync(log, "utf8").includes('"lost":') || null);
  assert.equal(await service.say(3), 403);
  const text = readFileSync(log, "utf8");
  const broken = text.split("\n").filter((line) => {
    try {
      return line.startsWith("{") && JSON.parse(line) === null;
    } catch {
      return true;
    }
  });
  // The line that the disk had no room for ends where it ended.
  assert.equal(broken.length, 1);
  const whole = text.split("\n").filter((line) => !broken.includes(line));
  assert.equal(checkNumbers(linesOf(`${whole.join("\n")}`), 403), lost);
  assert.equal(await service.lost(), lost);
  assert.equal(await service.stop(), 0);
});
