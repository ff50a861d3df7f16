/** The servers that tests start, when they fail or the tests end in the middle: seen from outside, in test files of their own. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmodSync, mkdirSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { ROOT } from "./support/command-line.ts";
import { eventually } from "./support/event-reader.ts";
import { linesOf, temporaryFolder } from "./support/storage.ts";

const POSTGRES = JSON.stringify(new URL("support/postgres.ts", import.meta.url).href);
/** The process of the server, as its own file of process ids tells it. */
const STARTED = `import { after, test } from "node:test";
  import { startPostgres } from ${POSTGRES};
  const server = await startPostgres();
  const [{ pid }] = await server.query("SELECT split_part(pg_read_file('postmaster.pid'), E'\\\\n', 1) AS pid");
  process.stderr.write(\`pid \${pid}\\n\`);`;

/** PostgreSQL, which is somebody else where the tests are root, reaches what is below it. */
async function folderFor(t: TestContext): Promise<string> {
  const folder = await temporaryFolder(t);
  chmodSync(folder, 0o755);
  return folder;
}

/** Runs a module as a test file. TMPDIR is where its servers make their folders. */
function runFile(t: TestContext, code: string, folder: string) {
  const args = ["--import", "tsx", "--test-reporter=tap", "--input-type=module", "-e", code];
  const { NODE_TEST_CONTEXT, PENSTOCK_TEST_POSTGRES, CI, ...env } = process.env;
  const child = spawn(process.execPath, args, { cwd: ROOT, env: { ...env, TMPDIR: folder } });
  const closed = once(child, "close");
  t.after(() => child.kill("SIGKILL"));
  let said = "";
  child.stdout.setEncoding("utf8").on("data", (text) => {
    said += text;
  });
  const errors: string[] = [];
  const lines = linesOf(child.stderr);
  const pid = async () => {
    for (;;) {
      const { value } = await lines.next();
      if (value === undefined) throw new Error(`it ended: ${said}${errors.join("\n")}`);
      errors.push(value);
      const [, found] = /^pid (\d+)$/.exec(value) ?? [];
      if (found !== undefined) return Number(found);
    }
  };
  const ended = async () => {
    for await (const line of lines) errors.push(line);
    const [code] = await closed;
    return { code, said: said + errors.join("\n") };
  };
  return { child, pid, ended };
}

const madeIn = (folder: string) => readdirSync(folder).filter((name) => name.startsWith("penstock-"));

const isIn = (pid: number, folder: string) => {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8").includes(folder);
  } catch {
    return false;
  }
};

test("a PostgreSQL server of a test file that ends by itself: the file fails at once, with the last lines of its log", async (t) => {
  const folder = await folderFor(t);
  const waits = 'test("waits for what never comes", () => new Promise(() => setInterval(() => {}, 1_000)));';
  const file = runFile(t, `${STARTED}\n${waits}`, folder);
  process.kill(await file.pid(), "SIGQUIT");
  const { code, said } = await file.ended();
  assert.equal(code, 1, said);
  assert.match(said, /PostgreSQL ended by itself \(\w+\)\. Its last lines:\n/);
  assert.match(said, /received immediate shutdown request/);
});

test("a PostgreSQL server that is installed and does not start: the file fails, with what the server said, and nothing is left", async (t) => {
  // No socket can be made at so long a path.
  const folder = join(await folderFor(t), "x".repeat(100));
  mkdirSync(folder);
  const { code, said } = await runFile(t, `${STARTED}\ntest("uses it", () => {});`, folder).ended();
  assert.equal(code, 1, said);
  assert.match(said, /PostgreSQL did not start:\n.*is too long/s);
  assert.deepEqual(madeIn(folder), []);
});

test("a test file that is killed: its PostgreSQL server ends, and the folder goes", async (t) => {
  const folder = await folderFor(t);
  const file = runFile(t, STARTED, folder);
  const pid = await file.pid();
  assert.ok(isIn(pid, folder));
  file.child.kill("SIGKILL");
  await eventually(() => !isIn(pid, folder) && madeIn(folder).length === 0, "its end");
});
