/** Real processes on one PostgreSQL that are killed and frozen, and a PostgreSQL that is: who goes on with what, and who does not. */
import assert from "node:assert/strict";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, type TestContext, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import type { MembershipTimes } from "../../core/storage/membership.ts";
import { type Member, startMember } from "../support/cluster.ts";
import type { MemberOptions } from "../support/cluster-member.ts";
import { NO_POSTGRES, type PostgresServer, startPostgres } from "../support/postgres.ts";
import { until } from "../support/probe.ts";
import { temporaryFolder } from "../support/storage.ts";

const server = await startPostgres();
const db = server as PostgresServer;
const skip = server === null ? NO_POSTGRES : false;
const skipUnlessOurs = skip || (db.stop === null ? "the server is not ours to stop" : false);
after(() => server?.close());

const NEVER = 3_600_000;

/** Writes who runs it. `hold`: until a file is there; `busy`: again and again until then; `fails`: the first try. */
const NOTE = `import { appendFileSync, existsSync } from "node:fs";
export default { kind: "step",
  config: { type: "object", properties: { file: { type: "string" }, go: { type: "string" }, how: { type: "string" } } },
  execute: async ({ data, config: { file, go, how }, idempotencyKey, attempt, signal }) => {
    const note = () => appendFileSync(file, process.pid + " " + idempotencyKey + "\\n");
    const pause = () => new Promise((resolve) => setTimeout(resolve, 10));
    note();
    if (how === "fails" && attempt === 1) throw new Error("not yet");
    while (how === "hold" && !existsSync(go)) await pause();
    while (how === "busy" && !existsSync(go) && !signal.aborted) { await pause(); if (!signal.aborted) note(); }
    return data;
  } };`;

async function cluster(t: TestContext, times: MembershipTimes) {
  const folder = await temporaryFolder(t);
  const [file, go] = [join(folder, "runs"), join(folder, "go")];
  const note = (id: string, how: string) => ({ id, andThen: { use: "note", with: { file, go, how } } });
  // So long that a process can be frozen in the pause, on a machine that is busy with other tests too.
  const retry = { attempts: 3, delay: "10s", backoff: "fixed" };
  const manifest = {
    workflows: {
      held: { steps: [note("one", "hold"), note("two", "")] },
      busy: { steps: [note("one", "busy")] },
      again: { steps: [{ ...note("one", "fails"), retry }] },
    },
  };
  const url = await db.createDatabase(t);
  const whole: MemberOptions = { url, times, manifest, plugins: { "steps/note.mjs": NOTE } };
  const start = (options: Partial<MemberOptions> = {}) => startMember(t, { ...whole, ...options });
  /** The keys of the steps that were run, each with the process that did. */
  const runs = async () => {
    const text = await readFile(file, "utf8").catch(() => "");
    const notes = text.split("\n").filter((line) => line !== "");
    return notes.map((line) => line.split(" ") as [pid: string, key: string]);
  };
  const runsOf = async ({ pid }: Member, key: string) =>
    (await runs()).filter((run) => run[0] === String(pid) && run[1] === key).length;
  /** The revisions of the rows of all processes. */
  const beats = async () => {
    const rows = await db.query("SELECT key, revision FROM penstock WHERE key LIKE 'xp/%'", url);
    return new Map(rows.map(({ key, revision }) => [String(key), Number(revision)]));
  };
  return { start, runs, runsOf, beats, url, go: () => writeFile(go, "") };
}

const execute = (workflow: string, id: string) => ({ what: "execute", workflow, id }) as const;
const status = (workflow: string, id: string) => ({ what: "status", workflow, id }) as const;

/** Waits until each process has written several heartbeats, so that whoever was to be taken for gone would have been. */
async function beatsOnOf(beats: () => Promise<Map<string, number>>, processes: number): Promise<void> {
  const changes = new Map<string, number>();
  let before = await beats();
  await until(async () => {
    const now = await beats();
    for (const [key, revision] of now) if (before.get(key) !== revision) changes.set(key, (changes.get(key) ?? 0) + 1);
    before = now;
    return [...changes.values()].filter((count) => count >= 12).length >= processes;
  }, "the heartbeats");
}

test("while PostgreSQL is stopped, started again and frozen, processes that live take nothing over from each other", {
  skip: skipUnlessOurs,
}, async (t) => {
  // So long that a machine that is busy with other tests lets every process write within it.
  const times = { heartbeatInterval: 100, leaseTimeout: 3_000, sessionTimeout: 3_000 };
  const { start, runs, runsOf, beats, go } = await cluster(t, times);
  const members = await Promise.all([start(), start({ elsewhere: true })]);
  const results = members.map((member, index) => member.ask(execute("held", `e${index}`)));
  await until(async () => (await runs()).length === 2, "the steps");
  await db.stop!("immediate");
  await sleep(2 * times.leaseTimeout);
  await db.start!();
  await beatsOnOf(beats, 2);
  const goOn = await db.freeze!();
  await sleep(2 * times.leaseTimeout).finally(goOn);
  await beatsOnOf(beats, 2);
  await go();
  for (const [index, result] of results.entries()) {
    assert.equal((await result).status, "completed");
    assert.equal(await runsOf(members[index]!, `e${index}:one`), 1);
  }
  assert.equal((await runs()).length, 4, "each step was run once");
  for (const { lines } of members) assert.ok(!lines.some((line) => /taken it for gone/.test(line)), lines.join("\n"));
});

test("a process that was frozen while another one took over does nothing more of it: no retry, and a step is told to stop", {
  skip,
}, async (t) => {
  const { start, runs, runsOf, url, go } = await cluster(t, { heartbeatInterval: 100, leaseTimeout: 800 });
  const frozen = await start();
  frozen.ask(execute("again", "a"));
  frozen.ask(execute("busy", "b"));
  await until(async () => new Set((await runs()).map(([, key]) => key)).size === 2, "the first tries");
  // From here on it is in the pause before the next try.
  const retries = async () => (await db.query(`SELECT FROM penstock WHERE value LIKE '%["retry"%'`, url)).length;
  await until(async () => (await retries()) === 1, "the end of the first try");
  frozen.child.kill("SIGSTOP");
  const living = await start();
  await until(
    async () => (await living.ask(status("again", "a"))) === "completed",
    "the end of the one that is tried again",
  );
  await until(async () => (await runsOf(living, "b:one")) > 0, "the take-over of the other");
  frozen.child.kill("SIGCONT");
  await until(() => frozen.lines.some((line) => /taken it for gone/.test(line)), "that it finds out");
  const before = await runsOf(frozen, "b:one");
  const since = await runsOf(living, "b:one");
  await until(async () => (await runsOf(living, "b:one")) > since + 20, "more of the step");
  assert.equal(await runsOf(frozen, "b:one"), before, "its step has stopped");
  assert.deepEqual([await runsOf(frozen, "a:one"), await runsOf(living, "a:one")], [1, 1], "its retry was not made");
  await go();
  await until(async () => (await living.ask(status("busy", "b"))) === "completed", "the end");
  assert.equal((await frozen.ask(execute("again", "c"))).status, "completed", "and it runs new ones");
});

test("what a process ran that was killed on another machine goes on before its lease runs out, because its session has ended", {
  skip,
}, async (t) => {
  const times = { heartbeatInterval: 100, leaseTimeout: NEVER, sessionTimeout: 500 };
  const { start, runs, runsOf, go } = await cluster(t, times);
  const [killed, living] = await Promise.all([start({ elsewhere: true }), start({ elsewhere: true })]);
  killed.ask(execute("held", "e"));
  await until(async () => (await runs()).length === 1, "the step");
  await killed.kill();
  await until(async () => (await runsOf(living, "e:one")) === 1, "the take-over");
  await go();
  await until(async () => (await living.ask(status("held", "e"))) === "completed", "the end");
});

test("a single process that was killed and starts again at the same place takes its work up with its start, whatever its lease", {
  skip,
}, async (t) => {
  const times = { heartbeatInterval: 60_000, leaseTimeout: NEVER, sessionTimeout: NEVER };
  const { start, runs, runsOf, go } = await cluster(t, times);
  const killed = await start();
  killed.ask(execute("held", "e"));
  await until(async () => (await runs()).length === 1, "the step");
  await killed.kill();
  const next = await start();
  await until(async () => (await runsOf(next, "e:one")) === 1, "the take-over");
  await go();
  await until(async () => (await next.ask(status("held", "e"))) === "completed", "the end");
});
