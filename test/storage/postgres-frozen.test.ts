/** PostgreSQL sessions that hold on to what others need: a process that is stopped in its transaction, a lock that is not given up. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { readFile } from "node:fs/promises";
import { after, type TestContext, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import pg from "pg";
import { PostgresDatabase } from "../../core/storage/postgres-database.ts";
import { openPostgresStore } from "../../core/storage/postgres-store.ts";
import type { Store } from "../../core/storage/store.ts";
import { NO_POSTGRES, type PostgresServer, startPostgres } from "../support/postgres.ts";
import { COMMIT_MODES } from "../support/postgres-modes.ts";
import { silent } from "../support/providers.ts";

const server = await startPostgres();
const skip = server === null ? NO_POSTGRES : false;
const db = server as PostgresServer;
after(() => server?.close());

const WRITER = fileURLToPath(new URL("../support/stopping-writer.mjs", import.meta.url));

async function open(t: TestContext, url: string): Promise<Store> {
  const store = await openPostgresStore(url, { logger: silent });
  t.after(() => store.close());
  return store;
}

/** Starts the writer, and waits until it has stopped itself. `go` lets it go on, and gives what it says. */
async function stoppedWriter(t: TestContext, url: string, when: "before" | "after", last: string) {
  const child = spawn(process.execPath, ["--import", "tsx", WRITER, url, when, last], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  t.after(() => child.kill("SIGKILL"));
  let text = "";
  child.stdout.setEncoding("utf8").on("data", (more) => {
    text += more;
  });
  const ended = new Promise<void>((resolve) => {
    child.on("close", () => resolve());
  });
  const isStopped = async () => / T /.test(await readFile(`/proc/${child.pid}/stat`, "utf8").catch(() => ""));
  while (!(await isStopped())) {
    assert.equal(child.exitCode, null, "it has ended instead");
    await sleep(5);
  }
  return {
    isStopped,
    async go(): Promise<{ revision?: number; error?: string }> {
      child.kill("SIGCONT");
      await ended;
      return JSON.parse(text);
    },
  };
}

test("store postgres: a process stopped (SIGSTOP) in its transaction holds up nobody, and commits once when it goes on", {
  skip,
}, async (t) => {
  const { createDatabase, last } = COMMIT_MODES.find(({ name }) => name === "in steps")!;
  const { url } = await createDatabase(db, t);
  const store = await open(t, url);
  await store.commit({ add: [["n", 1]] });
  const writer = await stoppedWriter(t, url, "before", last);
  const started = performance.now();
  // The same row that the stopped transaction has changed.
  await store.commit({ add: [["n", 1]] });
  t.diagnostic(`waited ${Math.round(performance.now() - started)} ms`);
  await Promise.all(
    Array.from({ length: 20 }, (_, index) => store.commit({ put: [[`k/${index}`, "1"]], add: [["n", 1]] })),
  );
  assert.ok(await writer.isStopped(), "the other process went on by itself");
  assert.equal(await store.get("own"), undefined);
  const said = await writer.go();
  const [own, n] = await store.getMany(["own", "n"]);
  assert.deepEqual([said, own?.value, n?.value], [{ revision: own?.revision }, "1", "23"]);
});

for (const { name, last, createDatabase } of COMMIT_MODES) {
  test(`store postgres: a process stopped when its commit ${name} was on the way knows later that it happened, and does not repeat it`, {
    skip,
  }, async (t) => {
    const { url, ownerUrl } = await createDatabase(db, t);
    const store = await open(t, url);
    const writer = await stoppedWriter(t, url, "after", last);
    await store.commit({ add: [["n", 1]] });
    // Its sessions end meanwhile, as they do when a network between the two gives up.
    await db.query(
      "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE state = 'idle' AND pid <> pg_backend_pid()",
      ownerUrl,
    );
    const said = await writer.go();
    const [own, n] = await store.getMany(["own", "n"]);
    assert.deepEqual([said, own?.value, n?.value], [{ revision: own?.revision }, "1", "2"]);
  });
}

test("store postgres: a row that another session keeps locked: 503 that says so, and commits go on when it lets go", {
  skip,
}, async (t) => {
  const url = await db.createDatabase(t);
  const limited = new URL(url);
  limited.searchParams.set("lock_timeout", "200");
  const store = await open(t, limited.href);
  await store.commit({ add: [["n", 1]] });
  const holder = new pg.Pool({ connectionString: url, max: 1 });
  t.after(() => holder.end());
  const session = await holder.connect();
  await session.query("BEGIN; UPDATE penstock SET value = value WHERE key = 'n'");
  await assert.rejects(store.commit({ add: [["n", 1]] }), {
    kind: "unavailable",
    message: "storage is unavailable: another session keeps rows locked",
  });
  await session.query("ROLLBACK");
  session.release();
  await store.commit({ add: [["n", 1]] });
  assert.equal((await store.get("n"))?.value, "2");
  assert.equal(await store.problem(), null);
});

test("store postgres: a statement that runs too long is ended by the server, also when nobody waits for it any more", {
  skip,
}, async (t) => {
  const url = new URL(await db.createDatabase(t));
  url.searchParams.set("statement_timeout", "200");
  const database = new PostgresDatabase(url.href, silent);
  t.after(() => database.disconnect());
  const running =
    "SELECT count(*)::int AS count FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%' AND state = 'active'";
  await assert.rejects(database.read({ text: "SELECT pg_sleep(60)" }), {
    kind: "unavailable",
    message: "storage is unavailable: a statement took too long",
  });
  await assert.rejects(database.read({ text: "SELECT pg_sleep(60)", query_timeout: 1 }), { kind: "unavailable" });
  while ((await db.query(running))[0]?.count !== 0) await sleep(10);
});

test("store postgres: every session has bounds on statements, locks and idle transactions, which the URL may change", {
  skip,
}, async (t) => {
  const url = await db.createDatabase(t);
  const SETTINGS =
    "SELECT current_setting('statement_timeout') AS statement, current_setting('lock_timeout') AS lock, current_setting('idle_in_transaction_session_timeout') AS idle";
  const settings = async (address: string) => {
    const database = new PostgresDatabase(address, silent);
    t.after(() => database.disconnect());
    const {
      rows: [reader],
    } = await database.read({ text: SETTINGS });
    const [writer] = await database.query(SETTINGS);
    assert.deepEqual(reader, writer);
    return reader;
  };
  assert.deepEqual(await settings(url), { statement: "30s", lock: "5s", idle: "1s" });
  const changed = new URL(url);
  changed.searchParams.set("statement_timeout", "120000");
  changed.searchParams.set("idle_in_transaction_session_timeout", "3000");
  assert.deepEqual(await settings(changed.href), { statement: "2min", lock: "5s", idle: "3s" });
});
