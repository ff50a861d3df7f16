/** `penstock backup` and `penstock restore`: copies of a SQLite file, while it is served and while it is not. */
import assert from "node:assert/strict";
import { chmod, copyFile, readdir, readFile, rm, stat, truncate, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type TestContext, test } from "node:test";
import { pino } from "pino";
import { backupSqlite } from "../../core/storage/sqlite-backup.ts";
import { restoreSqlite } from "../../core/storage/sqlite-restore.ts";
import { openSqliteStore } from "../../core/storage/sqlite-store.ts";
import type { Store } from "../../core/storage/store.ts";
import { PENSTOCK, penstock, serve } from "../support/command-line.ts";
import { manifestWith } from "../support/service.ts";
import { damagePages, otherConnection, temporaryFolder } from "../support/storage.ts";

const logger = pino({ level: "silent" });

/** A folder with a manifest, and what lies beside it. */
async function service(t: TestContext, store = "sqlite:data/test.db") {
  const cwd = await temporaryFolder(t);
  const manifest = { ...manifestWith({ memory: "default" }, { memory: { default: {} } }), store };
  await writeFile(join(cwd, "service.yaml"), JSON.stringify(manifest));
  const file = join(cwd, "data/test.db");
  return {
    cwd,
    file,
    open: () => openSqliteStore({ file, logger }),
    run: (...args: string[]) => penstock(args, { cwd }),
    names: () => readdir(cwd),
  };
}

const put = (store: Store, from: number, count: number): Promise<unknown> =>
  store.commit({
    put: Array.from({ length: count }, (_, at) => [`k/${String(from + at).padStart(6, "0")}`, `"${at}"`]),
  });
const count = async (store: Store): Promise<number> => (await store.scan({ prefix: "k/", limit: 100_000 })).length;

async function rowsOf(file: string): Promise<number> {
  const store = await openSqliteStore({ file, logger });
  try {
    return await count(store);
  } finally {
    await store.close();
  }
}

test("penstock backup: copies the conversations of a service that goes on serving; penstock restore brings them back", async (t) => {
  const { cwd, run } = await service(t);
  const served = await serve(t, [process.execPath, PENSTOCK, "--port", "0"], { cwd });
  const conversations = `${served.url}/api/memory/conversations`;
  const create = (conversationId: string) =>
    fetch(conversations, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ userId: "ada", conversationId }),
    });
  assert.equal((await create("before")).status, 201);
  const made = await run("backup", "one.db");
  assert.equal(made.stderr, "");
  assert.match(made.stdout, /^one\.db: \d+ bytes, a backup of sqlite:data\/test\.db\n$/);
  assert.equal((await create("after")).status, 201);
  const refused = await run("restore", "one.db");
  assert.equal(refused.code, 1);
  assert.match(refused.stderr, /^penstock: sqlite:data\/test\.db is in use by another process, .*\n$/);
  assert.equal((await fetch(`${conversations}/after`)).status, 200);
  await served.interrupt("SIGTERM");

  const restored = await run("restore", "one.db");
  assert.deepEqual([restored.code, restored.stderr], [0, ""]);
  assert.match(restored.stdout, /^sqlite:data\/test\.db: \d+ bytes, from the backup one\.db\n$/);
  const again = await serve(t, [process.execPath, PENSTOCK, "--port", "0"], { cwd });
  const statusOf = async (id: string) => (await fetch(`${again.url}/api/memory/conversations/${id}`)).status;
  assert.deepEqual([await statusOf("before"), await statusOf("after")], [200, 404]);
});

test("penstock backup: the copy is of one moment while commits go on, and holds all that was committed before it began", async (t) => {
  const { file, open, cwd } = await service(t);
  const store = await open();
  t.after(() => store.close());
  let written = 0;
  let stop = false;
  const writing = (async () => {
    // Two rows a commit, which must not be torn apart.
    for (; !stop; written++) {
      const name = String(written).padStart(6, "0");
      await store.commit({ put: ["a", "b"].map((side) => [`${side}/${name}`, `"${"x".repeat(400)}"`]) });
    }
  })();
  t.after(() => {
    stop = true;
    return writing;
  });
  for (let round = 0; round < 3; round++) {
    const [from, before] = [written, join(cwd, `${round}.db`)];
    while (written < from + 200) await new Promise(setImmediate);
    const least = written;
    await backupSqlite({ file, where: "sqlite:test.db" }, before);
    const most = written + 1;
    const copy = await openSqliteStore({ file: before, logger });
    const all = (prefix: string) => copy.scan({ prefix, limit: 100_000 });
    const [a, b] = [await all("a/"), await all("b/")];
    await copy.close();
    assert.deepEqual(
      a.map(({ key }) => key.slice(2)),
      b.map(({ key }) => key.slice(2)),
    );
    assert.ok(a.length >= least && a.length <= most, `${least} <= ${a.length} <= ${most}`);
  }
  stop = true;
  await writing;
});

test("penstock backup: refuses a file that exists, a folder that does not, and a store that is not there; nothing is left", async (t) => {
  const { cwd, file, open, names } = await service(t);
  const backup = (name: string) => backupSqlite({ file, where: "sqlite:test.db" }, join(cwd, name));
  await assert.rejects(backup("new.db"), /^Error: sqlite:test\.db cannot be read: ENOENT/);
  assert.deepEqual(await names(), ["service.yaml"], "the store is not made by looking for it");
  await (await open()).close();
  await writeFile(join(cwd, "taken.db"), "mine");
  await assert.rejects(backup("taken.db"), /taken\.db exists already: name a file that does not$/);
  assert.equal(await readFile(join(cwd, "taken.db"), "utf8"), "mine");
  await assert.rejects(backup("no/such/folder.db"), /folder\.db cannot be written: ENOENT/);
  assert.deepEqual(await names(), ["data", "service.yaml", "taken.db"]);
});

test("penstock backup: the copy may be read by whom the store may be read, and by nobody else", async (t) => {
  const { cwd, file, open } = await service(t);
  await (await open()).close();
  await chmod(file, 0o600);
  await backupSqlite({ file, where: "sqlite:test.db" }, join(cwd, "one.db"));
  assert.equal((await stat(join(cwd, "one.db"))).mode & 0o777, 0o600);
});

test("penstock backup and restore: a copy of a store that everybody may read, and a store that was not there, are for their owner alone", async (t) => {
  const { cwd, file, open } = await service(t);
  const store = await open();
  await put(store, 0, 10);
  await store.close();
  await chmod(file, 0o644);
  await backupSqlite({ file, where: "sqlite:test.db" }, join(cwd, "one.db"));
  await chmod(join(cwd, "one.db"), 0o644);
  const restored = join(cwd, "other", "new.db");
  await restoreSqlite({ file: restored, where: "sqlite:new.db" }, join(cwd, "one.db"));
  await backupSqlite({ file, where: "sqlite:test.db" }, join(cwd, "two.db"));
  const modes = [join(cwd, "two.db"), restored, join(cwd, "other")].map(
    async (path) => (await stat(path)).mode & 0o777,
  );
  assert.deepEqual(await Promise.all(modes), [0o600, 0o600, 0o700]);
});

test("penstock backup: a damaged file is not copied", async (t) => {
  const { cwd, file, open, names } = await service(t);
  const store = await open();
  await put(store, 0, 20_000);
  await store.close();
  await damagePages(file, 60, 2);
  await assert.rejects(
    backupSqlite({ file, where: "sqlite:test.db" }, join(cwd, "one.db")),
    /^Error: sqlite:test\.db cannot be copied: the file is damaged/,
  );
  assert.deepEqual(await names(), ["data", "service.yaml"]);
});

test("penstock backup: PostgreSQL, a plugin's store and memory: exit 1 with one line that says what to use", async (t) => {
  const lines: [store: string, line: RegExp][] = [
    ["postgres://ada:secret@127.0.0.1:1/db", /^penstock: the store is PostgreSQL: use pg_dump, .*\n$/],
    ["other:somewhere", /^penstock: the store is the plugin other: use penstock export and penstock import\n$/],
    ["memory:", /^penstock: service\.yaml: store memory: keeps nothing that a command could find\n$/],
  ];
  const ends = await Promise.all(lines.map(async ([store]) => (await service(t, store)).run("backup", "one.db")));
  for (const [index, { code, stderr }] of ends.entries()) {
    assert.equal(code, 1);
    assert.match(stderr, lines[index]![1]);
  }
});

test("penstock backup: finds the store by --config and the environment, and does not mind what is wrong elsewhere in the manifest", async (t) => {
  const { cwd, open } = await service(t);
  await (await open()).close();
  const manifest = {
    ...manifestWith(),
    store: "sqlite:$" + "{DATA}/test.db",
    providers: { x: { use: "nothing", apiKey: "$" + "{NO_KEY}" } },
  };
  await writeFile(join(cwd, "other.yaml"), JSON.stringify(manifest));
  const made = await penstock(["backup", "one.db", "--config", "other.yaml"], { cwd, env: { DATA: "data" } });
  assert.deepEqual([made.code, made.stderr], [0, ""]);
  const missing = await penstock(["backup", "two.db", "--config", "other.yaml"], { cwd });
  assert.equal(missing.code, 1);
  assert.match(missing.stderr, /^other\.yaml:1:\d+ {2}store: .*DATA.*\n$/);
});

test("penstock restore: a backup that is damaged, cut off, of a newer version or of another program is refused, and the store stays", async (t) => {
  const { cwd, file, open, names } = await service(t);
  const store = await open();
  await put(store, 0, 20_000);
  await store.close();
  const named = { file, where: "sqlite:test.db" };
  const of = (name: string) => join(cwd, name);
  await backupSqlite(named, of("good.db"));
  for (const name of ["damaged.db", "cut.db", "newer.db"]) await copyFile(of("good.db"), of(name));
  await damagePages(of("damaged.db"), 60, 2);
  await truncate(of("cut.db"), Math.floor((await stat(of("good.db"))).size / 2));
  const newer = await otherConnection(t, of("newer.db"));
  await newer.run("UPDATE penstock SET value = '7' WHERE key = 'schema'");
  await newer.close();
  await (await otherConnection(t, of("foreign.db"))).close();
  await writeFile(of("text.db"), "no database".repeat(1_000));
  const before = await names();
  const refused: [name: string, why: RegExp][] = [
    ["damaged.db", /damaged\.db is damaged: /],
    ["cut.db", /cut\.db (is damaged|cannot be used): /],
    ["newer.db", /newer\.db was written by a newer version \(schema 7; this one knows 3\)/],
    ["foreign.db", /foreign\.db is no store of Penstock/],
    ["text.db", /text\.db (is damaged|cannot be used): .*not a/],
    ["absent.db", /absent\.db cannot be read: ENOENT/],
    ["data/test.db", /is the file of the store: name a backup/],
  ];
  for (const [name, why] of refused) await assert.rejects(restoreSqlite(named, of(name)), why, name);
  assert.deepEqual(await names(), before);
  assert.deepEqual(await readdir(join(cwd, "data")), ["test.db", "test.db.lock"]);
  assert.equal(await rowsOf(file), 20_000);
});

test("penstock restore: what a killed process left in its log does not come into the restored file, and the file keeps its rights", async (t) => {
  const { cwd, file, open } = await service(t);
  const store = await open();
  await put(store, 0, 100);
  await backupSqlite({ file, where: "sqlite:test.db" }, join(cwd, "one.db"));
  await put(store, 100, 5_000);
  // As after `kill -9`: the log is there, and nobody has the file.
  for (const ending of ["", "-wal"]) await copyFile(file + ending, join(cwd, `killed.db${ending}`));
  await store.close();
  const killed = { file: join(cwd, "killed.db"), where: "sqlite:killed.db" };
  await chmod(killed.file, 0o640);
  assert.ok((await stat(`${killed.file}-wal`)).size > 0);
  await restoreSqlite(killed, join(cwd, "one.db"));
  assert.equal((await stat(killed.file)).mode & 0o777, 0o640);
  assert.equal(await rowsOf(killed.file), 100);
});

test("penstock restore: brings back a damaged store, makes one that is gone, and takes a copy with its log", async (t) => {
  const { cwd, file, open } = await service(t);
  const store = await open();
  await put(store, 0, 20_000);
  const named = { file, where: "sqlite:test.db" };
  await backupSqlite(named, join(cwd, "one.db"));
  // All files of a process that was killed.
  for (const ending of ["", "-wal"]) await copyFile(file + ending, join(cwd, `copy.db${ending}`));
  await store.close();
  await damagePages(file, 2, 100);
  // What an earlier restore left that was killed.
  for (const ending of ["", "-wal"]) await writeFile(`${file}.restoring${ending}`, "half of a file");
  await restoreSqlite(named, join(cwd, "one.db"));
  assert.equal(await rowsOf(file), 20_000);
  await rm(file);
  await restoreSqlite(named, join(cwd, "copy.db"));
  assert.equal(await rowsOf(file), 20_000);
  assert.deepEqual(await readdir(join(cwd, "data")), ["test.db", "test.db.lock"]);
});

test("penstock restore: a file that another service uses is not copied", async (t) => {
  const [mine, other] = [await service(t), await service(t)];
  const store = await other.open();
  t.after(() => store.close());
  await assert.rejects(
    restoreSqlite({ file: mine.file, where: "sqlite:test.db" }, other.file),
    /is in use by another process/,
  );
});
