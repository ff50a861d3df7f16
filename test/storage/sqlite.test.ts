/** The SQLite engine: what every store does, and what a file, a disk and other processes can do to us. */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { closeSync, openSync, readdirSync, readlinkSync, renameSync } from "node:fs";
import { chmod, link, mkdir, mkdtemp, readdir, rename, rm, stat, symlink, unlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { type TestContext, test } from "node:test";
import { pathToFileURL } from "node:url";
import { pino } from "pino";
import { CommitConflict } from "../../core/lib/errors.ts";
import { openStore, parseSqliteUrl } from "../../core/storage/open-store.ts";
import { openSqliteStore, type SqliteOptions } from "../../core/storage/sqlite-store.ts";
import type { Commit, Store } from "../../core/storage/store.ts";
import { storeSuite } from "../suites/store.suite.ts";
import { openMemories, pageOf, said } from "../support/memories.ts";
import { until } from "../support/probe.ts";
import { otherConnection, otherProcess, recordingLogger, strayValues, temporaryFolder } from "../support/storage.ts";

const silent = pino({ level: "silent" });

async function open(t: TestContext, options: Partial<SqliteOptions> = {}): Promise<Store & { file: string }> {
  const file = options.file ?? join(await temporaryFolder(t), "data", "test.db");
  const store = await openSqliteStore({ logger: silent, where: "sqlite:test.db", busyTimeout: 100, ...options, file });
  t.after(() => store.close());
  return Object.assign(store, { file });
}

storeSuite("sqlite:FILE", {
  async open(t) {
    const file = join(await mkdtemp(join(tmpdir(), "penstock-suite-")), "test.db");
    const store = await openSqliteStore({ file, logger: silent });
    t.after(async () => {
      await store.close();
      const strays = await strayValues(file);
      await rm(dirname(file), { recursive: true });
      assert.deepEqual(strays, [], "every large value belongs to a row");
    });
    return store;
  },
});

const isUnavailable = (pattern: RegExp) => (error: unknown) => {
  const { kind, message } = error as { kind?: unknown; message: string };
  assert.equal(kind, "unavailable", message);
  assert.match(message, pattern);
  return true;
};
const long = (index: number): [string, string] => [`k/${index}`, JSON.stringify("x".repeat(5_000))];
const countOf = async (store: Store, prefix: string) => (await store.scan({ prefix, limit: 10_000 })).length;

test("store sqlite: what was committed is there after the file is closed and opened again, with revisions that go on", async (t) => {
  const first = await open(t);
  const old = await first.commit({ put: [["a", "1"]], add: [["n", 3]] });
  await first.commit({ delete: ["a"] });
  await first.close();
  const second = await open(t, { file: first.file });
  assert.deepEqual([await second.get("a"), (await second.get("n"))?.value], [undefined, "3"]);
  const revision = await second.commit({ put: [["a", "1"]] });
  assert.ok(revision > old, "a row that comes back after a restart has a revision of its own");
  await assert.rejects(second.commit({ delete: ["a"], expect: [["a", old]] }), CommitConflict);
});

test("store sqlite: file, log, lock and folder are for their owner alone, also a file that an earlier version left open to all", async (t) => {
  const before = process.umask(0o022);
  t.after(() => void process.umask(before));
  const folder = join(await temporaryFolder(t), "deep", "data");
  const file = join(folder, "test.db");
  const modes = async () =>
    Object.fromEntries(
      await Promise.all(
        [join(folder, ".."), folder, ...["", "-wal", "-shm", ".lock"].map((ending) => file + ending)].map(
          async (path) => [path, (await stat(path)).mode & 0o777] as const,
        ),
      ),
    );
  const shut = { [join(folder, "..")]: 0o700, [folder]: 0o700 };
  for (const ending of ["", "-wal", "-shm", ".lock"]) shut[file + ending] = 0o600;
  const store = await open(t, { file });
  await store.commit({ put: [["a", "1"]] });
  assert.deepEqual(await modes(), shut);
  await store.close();
  for (const [given, kept] of [
    [0o644, 0o600],
    [0o664, 0o600],
    [0o640, 0o640],
  ] as const) {
    // As a process leaves them that was killed.
    for (const ending of ["-wal", "-shm"]) await writeFile(file + ending, "");
    for (const ending of ["", "-wal", "-shm", ".lock"]) await chmod(file + ending, given);
    const again = await open(t, { file });
    await again.commit({ put: [["a", "2"]] });
    assert.deepEqual(Object.values(await modes()).slice(2), [kept, kept, kept, kept], given.toString(8));
    await again.close();
  }
});

test("store sqlite: close waits for what was asked for, and afterwards everything is unavailable", async (t) => {
  const store = await open(t);
  const commits = Promise.all(Array.from({ length: 100 }, (_, index) => store.commit({ put: [long(index)] })));
  const rows = store.scan({ prefix: "k/", limit: 1 });
  await store.close();
  await store.close();
  await Promise.all([commits, rows]);
  await assert.rejects(store.get("k/1"), isUnavailable(/closed/));
  await assert.rejects(store.commit({}), isUnavailable(/closed/));
  assert.equal(await store.problem(), "it is closed");
  assert.equal(await countOf(await open(t, { file: store.file }), "k/"), 100);
});

test("store sqlite: while another process writes to the file, commits are unavailable, reads go on, and it comes back by itself", async (t) => {
  const { logger, lines } = recordingLogger();
  const store = await open(t, { logger });
  await store.commit({ put: [["a", "1"]] });
  const other = await otherConnection(t, store.file);
  await other.run("BEGIN IMMEDIATE");
  await assert.rejects(store.commit({ put: [["a", "2"]] }), isUnavailable(/locked by another process/));
  await assert.rejects(store.commit({ put: [["a", "3"]] }), isUnavailable(/locked by another process/));
  assert.equal(await store.problem(), "the file is locked by another process");
  assert.equal((await store.get("a"))?.value, "1");
  await other.run("COMMIT");
  assert.equal(await store.problem(), null);
  await store.commit({ put: [["a", "4"]] });
  assert.equal((await store.get("a"))?.value, "4");
  assert.equal(lines.length, 2);
  assert.match(
    lines[0] as string,
    /^error: sqlite:test.db cannot write: the file is locked by another process \(SQLITE_BUSY/,
  );
  assert.equal(lines[1], "info: sqlite:test.db can write again");
});

test("store sqlite: on a full disk a commit is unavailable and leaves nothing, others go on, and it comes back when there is room", async (t) => {
  const { logger, lines } = recordingLogger();
  const store = await open(t, { logger, maxPages: 100 });
  let written = 0;
  const fill = async () => {
    for (;;) {
      await store.commit({ put: [long(written), [`l/${written}`, "1"]], add: [["n", 1]] });
      written++;
    }
  };
  await assert.rejects(fill(), isUnavailable(/the disk is full/));
  assert.ok(written > 10);
  assert.equal(await store.problem(), "the disk is full");
  assert.deepEqual([await countOf(store, "k/"), await countOf(store, "l/")], [written, written]);
  assert.equal((await store.get("n"))?.value, String(written));
  await store.commit({ clear: ["k/"] });
  assert.equal(await store.problem(), null);
  await store.commit({ put: [long(0)] });
  assert.equal(await countOf(store, "k/"), 1);
  assert.deepEqual([...new Set(lines)].length, 2);
});

const canMount = process.platform === "linux" && process.getuid?.() === 0;

/** Null when it cannot be mounted. */
async function smallDisk(t: TestContext, size: string): Promise<string | null> {
  const folder = await mkdtemp(join(tmpdir(), "penstock-full-"));
  const mounted = spawnSync("mount", ["-t", "tmpfs", "-o", `size=${size}`, "tmpfs", folder]);
  t.after(async () => {
    spawnSync("umount", ["-l", folder]);
    await rm(folder, { recursive: true });
  });
  return mounted.status === 0 ? folder : null;
}

test("store sqlite: on a disk too small for a reserve, a deletion is refused when it is full with what it needs, and happens once there is room for the log", {
  skip: canMount ? false : "only root on Linux can mount a small disk",
}, async (t) => {
  const folder = await smallDisk(t, "3m");
  if (folder === null) return t.skip("a small disk cannot be mounted here");
  const store = await open(t, { file: join(folder, "test.db") });
  await writeFile(join(folder, "other"), Buffer.alloc(1024 * 1024));
  const fill = async () => {
    for (let index = 0; ; index++) await store.commit({ put: [long(index)] });
  };
  await assert.rejects(fill(), (error: Error) => error.message === "storage is unavailable: the disk is full");
  const needsRoom = isUnavailable(/the disk is full; to delete, SQLite needs a few MiB for its log: make room/);
  await assert.rejects(store.commit({ clear: ["k/"] }), needsRoom);
  await assert.rejects(store.commit({ delete: ["k/1"] }), needsRoom);
  assert.ok((await countOf(store, "k/")) > 10);
  await unlink(join(folder, "other"));
  await store.commit({ clear: ["k/"] });
  assert.equal(await countOf(store, "k/"), 0);
  assert.equal(await store.problem(), null);
  await store.close();
});

test("store sqlite: on a full disk everything that deletes is committed, and what puts once there is room again", {
  skip: canMount ? false : "only root on Linux can mount a small disk",
}, async (t) => {
  const folder = await smallDisk(t, "32m");
  if (folder === null) return t.skip("a small disk cannot be mounted here");
  const store = await open(t, { file: join(folder, "test.db"), shrinkInterval: 20 });
  const reserved = () =>
    stat(`${store.file}-reserve`).then(
      ({ size }) => size > 8_000_000,
      () => false,
    );
  await until(reserved, "a reserve");
  const { access } = await openMemories({ store });
  for (const id of ["c", "d"]) {
    await access.create({ id, userId: "u", resourceId: "r" });
    await access.save(["1", "2"].map((name) => ({ conversationId: id, message: said("Hello", `${id}${name}`) })));
  }
  let written = 0;
  /** To the last page: large commits first, then small ones. */
  const fill = async () => {
    for (const rows of [20, 1]) {
      const commit = () => store.commit({ put: Array.from({ length: rows }, () => long(written++)), delete: ["none"] });
      const all = async () => {
        for (;;) await commit();
      };
      await assert.rejects(all(), isUnavailable(/the disk is full$/));
    }
  };
  await fill();
  // In one group: what puts is refused, whatever happens beside it.
  const results = await Promise.allSettled([
    store.commit({ put: [["a", "1"]] }),
    store.commit({ delete: ["k/1"], add: [["deletions", 1]] }),
    store.commit({ clear: ["k/2"], put: [["b", "1"]], makesRoom: true }),
    store.commit({ put: [["c", "1"]], delete: ["k/3"] }),
  ]);
  assert.deepEqual(
    results.map(({ status }) => status),
    ["rejected", "fulfilled", "fulfilled", "rejected"],
  );
  assert.deepEqual(
    (await store.getMany(["a", "k/1", "deletions", "k/20", "b", "c", "k/3"])).map((row) => row !== undefined),
    [false, false, true, false, true, false, true],
  );
  assert.equal(await access.deleteMessages("c", ["c1"]), 1);
  assert.equal((await pageOf(access, "c")).messages.length, 1);
  await access.delete("d");
  for (let index = 4; index < 100; index++) await store.commit({ delete: [`k/${index}`] });
  await store.commit({ clear: ["k/"] });
  await until(async () => (await store.problem()) === null && (await reserved()), "room");
  await store.commit({ put: [["a", "1"]] });
  assert.equal(await countOf(store, "k/"), 0);
  // The same once more: the reserve is back.
  await fill();
  await store.commit({ clear: ["k/"] });
  await store.close();
});

/** The logs that this process has open from now on are a device that takes every write, and refuses to sync. */
function breakSync(file: string): void {
  for (const name of readdirSync("/proc/self/fd")) {
    const number = Number(name);
    let target = "";
    try {
      target = readlinkSync(`/proc/self/fd/${name}`);
    } catch {}
    if (target !== `${file}-wal`) continue;
    closeSync(number);
    assert.equal(openSync("/dev/null", "r+"), number);
  }
}

test("store sqlite: a commit whose fsync fails has not happened once the file is opened anew, and may have happened before that", {
  skip: process.platform === "linux" ? false : "open files are found in /proc",
}, async (t) => {
  const read = async (store: Store) => (await store.getMany(["a", "b", "n"])).map((row) => row?.value);
  // The connection that reads has lost its log as well, and is opened anew when it finds that out.
  const values = (store: Store) => read(store).catch(() => read(store));
  const store = await open(t);
  await store.commit({ put: [["a", "1"]] });
  breakSync(store.file);
  const failed = (error: Error) => error.message === "storage is unavailable: reading or writing the disk failed";
  await assert.rejects(store.commit({ put: [["a", "2"]], delete: ["b"] }), failed);
  await store.commit({ put: [["b", "1"]] });
  assert.deepEqual(await values(store), ["1", "1", undefined]);

  const works = async () => (await store.problem()) === null;
  await until(works, "the store");
  breakSync(store.file);
  const outcome = Promise.allSettled([store.commit({ put: [["a", "3"]] }), store.commit({ clear: ["b"] })]);
  // The file has just been seen in its place. It is missed once the commit has failed.
  renameSync(store.file, `${store.file}.away`);
  const unknown = isUnavailable(/^storage is unavailable: .* during the commit, which may have happened$/);
  for (const result of await outcome) assert.ok(result.status === "rejected" && unknown(result.reason));
  await assert.rejects(store.commit({ put: [["a", "4"]] }), isUnavailable(/the file was moved or deleted$/));
  await rename(`${store.file}.away`, store.file);
  await until(works, "the store");
  await store.commit({ add: [["n", 1]] });
  assert.deepEqual(await values(store), ["1", "1", "1"]);
  await store.close();
  const again = await open(t, { file: store.file });
  assert.deepEqual(await values(again), ["1", "1", "1"]);
});

test("store sqlite: a group that the disk refuses is refused to all who are in it, and revisions stay right", async (t) => {
  const store = await open(t, { maxPages: 60 });
  const revision = await store.commit({ put: [["a", "1"]] });
  const results = await Promise.allSettled(
    Array.from({ length: 200 }, (_, index) => store.commit({ put: [long(index)] })),
  );
  assert.ok(results.every(({ status }) => status === "rejected"));
  assert.equal(await countOf(store, "k/"), 0);
  const next = await store.commit({ put: [["a", "2"]], expect: [["a", revision]] });
  assert.ok(next > revision);
});

test("store sqlite: when the disk fills up while a group is written again without a commit that is refused, nothing that is refused has happened", async (t) => {
  const store = await open(t, { maxPages: 60 });
  await store.commit({ put: [["b", '"no counter"']] });
  const group: Record<string, Commit> = {
    a: { put: [["a", "1"]] },
    b: { put: [["c", "1"]], add: [["b", 1]] },
    z: { put: [["z", JSON.stringify("x".repeat(1_000_000))]] },
  };
  const results = await Promise.allSettled(Object.values(group).map((commit) => store.commit(commit)));
  for (const [index, key] of ["a", "c", "z"].entries()) {
    const row = await store.get(key);
    assert.equal(results[index]!.status === "fulfilled", row !== undefined, key);
  }
  assert.deepEqual(
    (await Promise.allSettled([group.a!, group.b!].map((commit) => store.commit(commit)))).map(({ status }) => status),
    ["fulfilled", "rejected"],
  );
  assert.deepEqual([(await store.get("a"))?.value, await store.get("c")], ["1", undefined]);
});

test("store sqlite: a file that was moved away takes no commit that would be lost, and does when it is back", async (t) => {
  const store = await open(t);
  await store.commit({ put: [["a", "1"]] });
  await rename(store.file, `${store.file}.moved`);
  assert.equal(await store.problem(), "the file was moved or deleted");
  await assert.rejects(store.commit({ put: [["a", "2"]] }), isUnavailable(/moved or deleted/));
  await rename(`${store.file}.moved`, store.file);
  assert.equal(await store.problem(), null);
  await store.commit({ put: [["a", "3"]] });
  assert.equal((await store.get("a"))?.value, "3");
});

test("store sqlite: a file of another version is refused with its version, and left as it is", async (t) => {
  const store = await open(t);
  await store.commit({ put: [["a", "1"]] });
  await store.close();
  const other = await otherConnection(t, store.file);
  await other.run("UPDATE penstock SET value = '7' WHERE key = 'schema'");
  await other.close();
  await assert.rejects(
    open(t, { file: store.file }),
    /^Error: sqlite:test.db was written by a newer version \(schema 7; this one knows 3\): run that version, or name another file$/,
  );
  // The refusal has let go of the file.
  const older = await otherConnection(t, store.file);
  await older.run("UPDATE penstock SET value = '1' WHERE key = 'schema'");
  await older.close();
  await assert.rejects(open(t, { file: store.file }), /before the first release \(schema 1; this one needs 3\)/);
  const again = await otherConnection(t, store.file);
  await again.run("UPDATE penstock SET value = '3' WHERE key = 'schema'");
  await again.close();
  assert.equal((await (await open(t, { file: store.file })).get("a"))?.value, "1");
});

const inUse =
  /^Error: sqlite:test.db is in use by another process, which holds .*test\.db\.lock: stop that one, or give this one a store of its own$/;

test("store sqlite: a second process on the same file is refused, and accepted when the first was killed", async (t) => {
  const file = join(await temporaryFolder(t), "test.db");
  const holder = otherProcess(
    t,
    `import { openSqliteStore } from ${JSON.stringify(pathToFileURL(resolve("core/storage/sqlite-store.ts")).href)};
     import { pino } from "pino";
     const store = await openSqliteStore({ file: ${JSON.stringify(file)}, logger: pino({ level: "silent" }) });
     for (let n = 0; ; n++) { await store.commit({ put: [["k/" + String(n).padStart(6, "0"), "1"]] }); console.log(n); }`,
  );
  assert.equal(await holder.line(), "0");
  await assert.rejects(open(t, { file }), inUse);
  let last = "";
  for (let count = 0; count < 50; count++) last = (await holder.line()) ?? last;
  await holder.kill();
  for (let line = await holder.line(); line !== undefined; line = await holder.line()) last = line;
  const store = await open(t, { file });
  assert.ok((await countOf(store, "k/")) > Number(last), "everything that was acknowledged is there");
});

test("store sqlite: a second store on the same file in one process is refused too, by whatever path", async (t) => {
  const store = await open(t);
  await assert.rejects(open(t, { file: store.file }), inUse);
  await assert.rejects(open(t, { file: join(store.file, "..", "..", "data", "test.db") }), inUse);
  await store.commit({ put: [["a", "1"]] });
});

test("store sqlite: symbolic links to the file and to its folder lead to the same lock, before the file exists and after", async (t) => {
  const folder = await temporaryFolder(t);
  await mkdir(join(folder, "data"));
  await symlink("data", join(folder, "linked"));
  await symlink(join("linked", "real.db"), join(folder, "test.db"));
  const names = ["data/real.db", "linked/real.db", "test.db"].map((name) => join(folder, name));
  const refused = /sqlite:test.db is in use by another process, which holds .*data.real\.db\.lock: stop that one/;
  for (const first of [names[2]!, ...names]) {
    const store = await open(t, { file: first });
    for (const file of names) await assert.rejects(open(t, { file }), refused, `${first}, then ${file}`);
    await store.close();
  }
  await symlink("circle.db", join(folder, "circle.db"));
  await assert.rejects(open(t, { file: join(folder, "circle.db") }), /its symbolic links lead in a circle/);
});

test("store sqlite: a file with a hard link is refused with its number of names, and accepted when one is left", async (t) => {
  const store = await open(t);
  const other = join(store.file, "..", "other.db");
  await link(store.file, other);
  const refused =
    /sqlite:test.db cannot be opened: .*other\.db has 2 names \(hard links\).*: keep one name, or make a copy/;
  await assert.rejects(open(t, { file: other }), refused);
  await store.close();
  await assert.rejects(open(t, { file: other }), refused);
  await unlink(other);
  await open(t, { file: store.file });
});

test("store sqlite: a file that is not a database, a folder, and a path through a file are refused by name", async (t) => {
  const folder = await temporaryFolder(t);
  await writeFile(join(folder, "text.db"), "this is no database, and long enough to be seen as none".repeat(20));
  await mkdir(join(folder, "folder.db"));
  await assert.rejects(
    open(t, { file: join(folder, "text.db") }),
    /sqlite:test.db cannot be opened: the file is damaged, or not a SQLite database/,
  );
  await assert.rejects(
    open(t, { file: join(folder, "folder.db") }),
    /sqlite:test.db cannot be opened: the file cannot be opened/,
  );
  await assert.rejects(open(t, { file: join(folder, "text.db", "x.db") }), /sqlite:test.db cannot be opened: /);
});

test("store sqlite: a file that may not be written is refused at boot with a message that says so", async (t) => {
  const store = await open(t);
  await store.commit({ put: [["a", "1"]] });
  await store.close();
  const folder = join(store.file, "..");
  for (const name of await readdir(folder)) await chmod(join(folder, name), 0o444);
  await chmod(folder, 0o555);
  await chmod(join(folder, ".."), 0o755);
  // Nothing is read-only to root.
  const root = process.getuid?.() === 0;
  if (root) process.seteuid?.(65_534);
  try {
    await assert.rejects(
      open(t, { file: store.file }),
      /sqlite:test.db cannot be opened: the file (is read-only|cannot be opened)/,
    );
  } finally {
    if (root) process.seteuid?.(0);
    await chmod(folder, 0o755);
  }
  for (const name of await readdir(folder)) await chmod(join(folder, name), 0o644);
  assert.equal((await (await open(t, { file: store.file })).get("a"))?.value, "1");
});

test("store sqlite: in its URL: the file is relative to the manifest, and synchronous is a setting", async (t) => {
  assert.deepEqual(parseSqliteUrl("sqlite:data/x.db", "/srv"), {
    file: "/srv/data/x.db",
    where: "sqlite:data/x.db",
    synchronous: "full",
  });
  assert.equal(parseSqliteUrl("sqlite:/var/x.db?synchronous=normal", "/srv").synchronous, "normal");
  assert.equal(parseSqliteUrl("sqlite:///var/x.db", "/srv").file, "/var/x.db");
  assert.throws(
    () => parseSqliteUrl("sqlite:x.db?sync=off", "/srv"),
    /unknown setting sync; sqlite: knows synchronous/,
  );
  assert.throws(() => parseSqliteUrl("sqlite:x.db?synchronous=off", "/srv"), /synchronous must be full or normal/);
  assert.throws(() => parseSqliteUrl("sqlite::memory:", "/srv"), /names no file/);
  const folder = await temporaryFolder(t);
  const options = { logger: silent, folder, registry: undefined as never, host: undefined as never };
  const store = await openStore("sqlite:deep/down/x.db?synchronous=normal", options);
  t.after(() => store.close());
  await store.commit({ put: [["a", "1"]] });
  assert.ok((await readdir(join(folder, "deep", "down"))).includes("x.db"));
});
