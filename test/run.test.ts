/** The runner, over a test file of one test: which skips it takes. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { symlinkSync } from "node:fs";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { ROOT, run } from "./support/command-line.ts";
import { pluginFolder } from "./support/plugin-folder.ts";

/** Its title is in the list, with the reason that it takes long. */
const LISTED = "what a process ran that was killed is finished by another one on the same PostgreSQL";

/** A checkout with one test file. */
function folderOf(t: TestContext, title: string, body: string): string {
  const code = `import { describe, test } from "node:test";\ndescribe("s", () => { test("passes", () => {}); });\ntest("${title}", ${body});\n`;
  const cwd = pluginFolder(t, { "test/one.test.ts": code, "package.json": '{ "type": "module" }' });
  symlinkSync(join(ROOT, "node_modules"), join(cwd, "node_modules"));
  return cwd;
}

const RUN_ONE = [join(ROOT, "test/run.mjs"), "one"];
const runOne = (t: TestContext, title: string, body: string, env?: Record<string, string>) =>
  run(process.execPath, RUN_ONE, { cwd: folderOf(t, title, body), env });

const LATE = '{ skip: "not today" }, () => {}';

test("npm test: a test that is skipped and not in test/skips.mjs fails the run, by its title and with what it said", async (t) => {
  const { code, stdout, stderr } = await runOne(t, "waits for tomorrow", LATE);
  assert.equal(code, 1);
  assert.match(stdout, /^ℹ tests 2\n(.*\n)*ℹ fail 0\n(.*\n)*ℹ skipped 1\n/m);
  assert.equal(stderr, "FAILED: skipped, and not expected to be: waits for tomorrow (not today)\n");
});

test("npm test: a test that test/skips.mjs expects to be skipped is skipped, and the last lines say how many and why", async (t) => {
  const { code, stdout, stderr } = await runOne(t, LISTED, LATE);
  assert.deepEqual([code, stderr], [0, ""]);
  assert.match(stdout, /\nℹ skipped 1\n(.*\n)*1 skipped: it takes a minute: npm run test:crash\n$/);
});

test("npm test: a test that runs although test/skips.mjs says that it cannot fails the run, and does not where that does not hold", async (t) => {
  const { code, stderr } = await runOne(t, LISTED, "() => {}");
  assert.equal(code, 1);
  assert.equal(
    stderr.replace(LISTED, "it").replace(/\(.*\)/, ""),
    "FAILED: ran, and test/skips.mjs says that it cannot: it \n",
  );
  const other = await runOne(t, LISTED, "() => {}", { PENSTOCK_CRASH_ROUNDS: "1" });
  assert.deepEqual([other.code, other.stderr], [0, ""]);
});

test("npm test: a file that cannot be loaded fails the run at once, and says why", async (t) => {
  const { code, stdout } = await runOne(t, "ends", '() => {}); throw new Error("not loaded"');
  assert.equal(code, 1);
  assert.match(stdout, /Error: not loaded/);
});

test("npm test: a test that fails fails the run", async (t) => {
  const { code } = await runOne(t, "fails", '() => { throw new Error("no"); }');
  assert.equal(code, 1);
});

test("npm test: a run that is interrupted ends what its tests have started, also in a group of its own, and fails", async (t) => {
  const server = createServer().listen(0, "127.0.0.1");
  t.after(() => server.close());
  await once(server, "listening");
  // It stays as long as nobody ends it.
  const code = `require("node:net").connect(${(server.address() as AddressInfo).port}, "127.0.0.1")`;
  const options = '{ detached: true, stdio: "ignore" }';
  const starts = `(await import("node:child_process")).spawn(process.execPath, ["-e", ${JSON.stringify(code)}], ${options})`;
  const cwd = folderOf(t, "waits", `async () => { ${starts}; await new Promise(() => {}); }`);
  const env = { PATH: process.env.PATH };
  const child = spawn(process.execPath, RUN_ONE, { cwd, env, stdio: ["ignore", "ignore", "pipe"] });
  const ended = once(child, "close");
  const [socket]: Socket[] = await once(server, "connection");
  const gone = once(socket!.resume(), "close");
  let said = "";
  child.stderr.on("data", (text) => {
    said += text;
  });
  child.kill("SIGINT");
  await gone;
  assert.deepEqual(await ended, [1, null]);
  assert.equal(said, "FAILED: SIGINT\n");
});

const LATE_ERRORS = `import { describe, test } from "node:test";
const after = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const late = (text) => setTimeout(async () => { await after(1); throw new Error(text); }, 1);
describe("a suite that awaits", async () => {
  await after(1);
  test("is inside", () => {});
  await after(1);
  test("of a suite", async () => { late("first"); await new Promise(() => {}); });
});
test("rejects", async () => { await after(1); late("second"); await new Promise(() => {}); });
test("throws", async () => { setTimeout(() => { throw new Error("third"); }, 1); await new Promise(() => {}); });
test("passes", () => {});
`;

test("npm test: an error that nobody awaits fails the test that made it, and a suite has the tests that it declares, as without test/attribution.mjs", async (t) => {
  const cwd = pluginFolder(t, { "late.mjs": LATE_ERRORS });
  const told = async (...options: string[]) => {
    const { code, stdout } = await run(process.execPath, [...options, "--test-reporter=tap", "late.mjs"], { cwd });
    return {
      code,
      lines: stdout.split("\n").filter((line) => /^ *(not ok|ok|error:|# (tests|suites|pass|fail)) /.test(line)),
    };
  };
  const lighter = await told("--import", new URL("attribution.mjs", import.meta.url).href);
  assert.deepEqual(lighter, await told());
  assert.equal(lighter.code, 1);
  for (const [title, error] of [
    ["of a suite", "first"],
    ["rejects", "second"],
    ["throws", "third"],
  ])
    assert.match(lighter.lines.join("\n"), new RegExp(`not ok \\d - ${title}\n *error: '${error}'`));
});
