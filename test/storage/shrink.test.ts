/** The SQLite file gets smaller when rows were deleted: by itself, and by `penstock vacuum`. */
import assert from "node:assert/strict";
import { chmod, readdir, stat, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { type TestContext, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { pino } from "pino";
import { vacuumSqlite } from "../../core/storage/sqlite-owned.ts";
import { openSqliteStore } from "../../core/storage/sqlite-store.ts";
import type { Store } from "../../core/storage/store.ts";
import { penstock } from "../support/command-line.ts";
import { manifestWith } from "../support/service.ts";
import { otherConnection, temporaryFolder } from "../support/storage.ts";

const logger = pino({ level: "silent" });
const MIB = 1024 * 1024;

/** About 28 MiB. */
async function fill(store: Store): Promise<void> {
  for (let part = 0; part < 50; part++) {
    const rows = Array.from({ length: 1_000 }, (_, at): [string, string] => [
      `k/${String(part * 1_000 + at).padStart(6, "0")}`,
      `"${"x".repeat(500)}"`,
    ]);
    await store.commit({ put: rows });
  }
}

/** All but 10,000 of them. */
const MOST = ["k/01", "k/02", "k/03", "k/04"];

const sizeOf = async (file: string) => (await stat(file)).size;
const newFile = async (t: TestContext) => join(await temporaryFolder(t), "test.db");

test("store sqlite: after many rows were deleted the file gets smaller by itself, while commits go on", async (t) => {
  const file = await newFile(t);
  const store = await openSqliteStore({ file, logger, shrinkInterval: 20 });
  t.after(() => store.close());
  await fill(store);
  await store.commit({ clear: MOST });
  for (let commits = 0; (await sizeOf(file)) === 0 || (await sizeOf(file)) > 8 * MIB; commits++) {
    await store.commit({ put: [[`l/${commits}`, "1"]] });
    await sleep(5);
  }
  assert.equal((await store.scan({ prefix: "k/", limit: 100_000 })).length, 10_000);
  assert.equal(await store.problem(), null);
});

test("store sqlite: close does not wait until a file has got smaller", async (t) => {
  const file = await newFile(t);
  const store = await openSqliteStore({ file, logger, shrinkInterval: 20 });
  await fill(store);
  await store.commit({ clear: ["k/"] });
  await store.close();
  const { run } = await otherConnection(t, file);
  assert.ok((await sizeOf(file)) > 16 * MIB, "it was cut short");
  assert.deepEqual(await run("PRAGMA quick_check"), [{ quick_check: "ok" }]);
});

test("penstock vacuum: makes the file of an older version smaller at once, and from then on it gets smaller by itself", async (t) => {
  const file = await newFile(t);
  const modeOf = async () => {
    const other = await otherConnection(t, file);
    const rows = (await other.run("PRAGMA auto_vacuum")) as { auto_vacuum: number }[];
    await other.close();
    return rows[0]?.auto_vacuum;
  };
  // As before files were made to get smaller: the first table was there before anything was said about it.
  await (await otherConnection(t, file)).close();
  const store = await openSqliteStore({ file, logger });
  await fill(store);
  await store.commit({ clear: MOST });
  const named = { file, where: "sqlite:test.db" };
  await assert.rejects(vacuumSqlite(named), /in use by another process/);
  await store.close();
  assert.equal(await modeOf(), 0);
  const said = /^sqlite:test\.db: (\d+) bytes, before (\d+)$/.exec(await vacuumSqlite(named));
  const [after, before] = [Number(said?.[1]), Number(said?.[2])];
  assert.ok(before > 20 * MIB && after < 8 * MIB, `${before} ${after}`);
  assert.equal(await sizeOf(file), after);
  assert.equal(await modeOf(), 2);
  const again = await openSqliteStore({ file, logger });
  t.after(() => again.close());
  assert.equal((await again.scan({ prefix: "k/", limit: 100_000 })).length, 10_000);
  assert.deepEqual(
    (await readdir(dirname(file))).filter((name) => /vacuum|restor|part/.test(name)),
    [],
  );
});

test("penstock vacuum beside a service: the open store gives the space of deleted rows back at once, and goes on", async (t) => {
  const file = await newFile(t);
  const store = await openSqliteStore({ file, logger });
  t.after(() => store.close());
  await fill(store);
  await store.commit({ clear: MOST });
  const [said] = await Promise.all([store.file!.shrink(), store.commit({ put: [["beside", "1"]] })]);
  assert.match(said, /^sqlite:\S+: \d+ bytes, before \d+$/);
  const size = await sizeOf(file);
  assert.ok(size < 8 * MIB, `${size}`);
  assert.equal((await store.scan({ prefix: "k/", limit: 100_000 })).length, 10_000);
  assert.equal((await store.get("beside"))?.value, "1");
});

test("penstock vacuum: nobody can read the new file who may not read the store, also while it is written", async (t) => {
  const file = await newFile(t);
  const store = await openSqliteStore({ file, logger });
  await fill(store);
  await store.close();
  await chmod(file, 0o600);
  const seen = new Set<number>();
  let ended = false;
  const done = vacuumSqlite({ file, where: "sqlite:test.db" }).finally(() => {
    ended = true;
  });
  while (!ended) {
    const draft = await stat(`${file}.vacuum`).catch(() => undefined);
    if (draft !== undefined) seen.add(draft.mode & 0o777);
  }
  await done;
  assert.deepEqual([[...seen], (await stat(file)).mode & 0o777], [[0o600], 0o600]);
});

test("penstock vacuum: says both sizes; on PostgreSQL it is not needed, exit 1", async (t) => {
  const file = await newFile(t);
  await (await openSqliteStore({ file, logger })).close();
  const ends = await Promise.all(
    ["sqlite:test.db", "postgres://127.0.0.1:1/db"].map(async (store, index) => {
      const config = join(dirname(file), `${index}.yaml`);
      await writeFile(config, JSON.stringify({ ...manifestWith(), store }));
      return penstock(["vacuum", "--config", config]);
    }),
  );
  assert.match(ends[0]!.stdout, /^sqlite:test\.db: \d+ bytes, before \d+\n$/);
  assert.deepEqual([ends[0]!.code, ends[1]!.code], [0, 1]);
  assert.equal(ends[1]!.stderr, "penstock: the store is PostgreSQL, which does this by itself: vacuum is for SQLite\n");
});
