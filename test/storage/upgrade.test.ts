/** Stores of an older layout are brought to a newer one, and a release refuses a layout that is newer than its own. */
import assert from "node:assert/strict";
import { copyFile, readdir, writeFile } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { after, type TestContext, test } from "node:test";
import { pathToFileURL } from "node:url";
import { pino } from "pino";
import { LAYOUT_VERSION } from "../../core/storage/layout.ts";
import type { PostgresLayout } from "../../core/storage/postgres-database.ts";
import { openPostgresStore } from "../../core/storage/postgres-store.ts";
import { migratePostgres } from "../../core/storage/postgres-upgrade.ts";
import { migrateSqlite } from "../../core/storage/sqlite-owned.ts";
import { restoreSqlite } from "../../core/storage/sqlite-restore.ts";
import { openSqliteConnection, SQLITE_LAYOUT, type SqliteLayout } from "../../core/storage/sqlite-schema.ts";
import { openSqliteStore } from "../../core/storage/sqlite-store.ts";
import { upgradeSqlite } from "../../core/storage/sqlite-upgrade.ts";
import { penstock } from "../support/command-line.ts";
import { NO_POSTGRES, type PostgresServer, sharedPostgres } from "../support/postgres.ts";
import type { Loose } from "../support/served-upstream.ts";
import { manifestWith, startService } from "../support/service.ts";
import { otherConnection, otherProcess, recordingLogger, strayValues, temporaryFolder } from "../support/storage.ts";

const server = await sharedPostgres();
const skip = server === null ? NO_POSTGRES : false;
const db = server as PostgresServer;
after(() => server?.close());

const silent = pino({ level: "silent" });
const NEXT = LAYOUT_VERSION + 1;
const PRESENT = SQLITE_LAYOUT.version;

/** Two versions further: the first step moves rows, the second adds a column. */
const NEWER: SqliteLayout = {
  version: PRESENT + 2,
  steps: [
    {
      from: PRESENT,
      what: "moves what was at old/ to new/",
      apply: async (connection) =>
        void (await connection.query("UPDATE rows SET key = 'new/' || substr(key, 5) WHERE key LIKE 'old/%'")),
    },
    {
      from: PRESENT + 1,
      what: "gives every row a length",
      apply: async (connection) => {
        await connection.query("ALTER TABLE rows ADD COLUMN length INTEGER");
        await connection.query("UPDATE rows SET length = length(value)");
      },
    },
  ],
};

const failing: SqliteLayout = {
  ...NEWER,
  steps: [
    NEWER.steps[0]!,
    {
      from: PRESENT + 1,
      what: "fails",
      apply: async () => {
        throw new Error("it failed");
      },
    },
  ],
};

async function oldFile(t: TestContext): Promise<string> {
  const file = join(await temporaryFolder(t), "test.db");
  const store = await openSqliteStore({ file, logger: silent });
  await store.commit({
    put: [
      ["old/a", '"1"'],
      ["b", '"22"'],
    ],
    add: [["n/x", 3]],
  });
  await store.close();
  return file;
}

async function contentOf(t: TestContext, file: string): Promise<{ version: string; keys: string[] }> {
  const { run, close } = await otherConnection(t, file);
  const [meta] = (await run("SELECT value FROM penstock WHERE key = 'schema'")) as { value: string }[];
  const rows = (await run("SELECT key FROM rows ORDER BY key")) as { key: string }[];
  await close();
  return { version: meta!.value, keys: rows.map(({ key }) => key) };
}

const OLD = { version: String(PRESENT), keys: ["b", "n/x", "old/a"] };
const UPGRADED = { version: String(PRESENT + 2), keys: ["b", "n/x", "new/a"] };
const backupsOf = async (file: string) =>
  (await readdir(dirname(file))).filter((name) => name.endsWith(".backup")).map((name) => join(dirname(file), name));

test("store sqlite: a start brings a small file of an older layout through all steps, with a backup first, and says so", async (t) => {
  const file = await oldFile(t);
  const { logger, lines } = recordingLogger();
  const store = await openSqliteStore({ file, where: "sqlite:test.db", logger, layout: NEWER });
  t.after(() => store.close());
  assert.equal((await store.get("new/a"))?.value, '"1"');
  await store.commit({ add: [["n/x", 1]] });
  assert.equal((await store.get("n/x"))?.value, "4");
  assert.deepEqual(await contentOf(t, file), UPGRADED);
  const [backup, ...others] = await backupsOf(file);
  assert.deepEqual(others, []);
  assert.deepEqual(await contentOf(t, backup!), OLD);
  assert.deepEqual(lines, [
    `info: sqlite:test.db: the backup before the upgrade is ${backup}`,
    `info: sqlite:test.db: upgraded from schema ${PRESENT} to ${PRESENT + 1}: moves what was at old/ to new/`,
    `info: sqlite:test.db: upgraded from schema ${PRESENT + 1} to ${PRESENT + 2}: gives every row a length`,
  ]);
});

test("store sqlite: a file that was upgraded is opened again without another backup, and refused by the older release", async (t) => {
  const file = await oldFile(t);
  for (let round = 0; round < 2; round++)
    await (await openSqliteStore({ file, logger: silent, layout: NEWER })).close();
  assert.equal((await backupsOf(file)).length, 1);
  await assert.rejects(
    openSqliteStore({ file, where: "sqlite:test.db", logger: silent }),
    new RegExp(`sqlite:test.db was written by a newer version \\(schema ${PRESENT + 2}; this one knows ${PRESENT}\\)`),
  );
});

test("store sqlite: a step that fails leaves the file as it was, with all rows of the steps before it", async (t) => {
  const file = await oldFile(t);
  await assert.rejects(openSqliteStore({ file, logger: silent, layout: failing }), /it failed/);
  assert.deepEqual(await contentOf(t, file), OLD);
  const store = await openSqliteStore({ file, logger: silent });
  assert.equal((await store.get("old/a"))?.value, '"1"');
  await store.close();
});

test("penstock migrate: upgrades a file that is too large for a start, which names the command", async (t) => {
  const file = await oldFile(t);
  const connection = await openSqliteConnection({ file, busyTimeout: 100, pragmas: [] });
  const named = { file, where: "sqlite:test.db" };
  await assert.rejects(
    upgradeSqlite(connection, named, { layout: NEWER, upTo: 1_000, report: () => {} }),
    /sqlite:test\.db was written by an older version \(schema 3; this one needs 5\), and with \d+ bytes it is too large .*: run penstock migrate$/,
  );
  await connection.close();
  assert.deepEqual(await contentOf(t, file), OLD);
  assert.deepEqual(await backupsOf(file), []);
  const lines: string[] = [];
  assert.equal(await migrateSqlite(named, { layout: NEWER, report: (line) => lines.push(line) }), true);
  assert.equal(lines.length, 3);
  assert.deepEqual(await contentOf(t, file), UPGRADED);
});

test("penstock migrate: has nothing to do with a file of this version, and refuses a newer one and one in use", async (t) => {
  const file = await oldFile(t);
  const config = join(dirname(file), "service.yaml");
  await writeFile(config, JSON.stringify({ ...manifestWith(), store: "sqlite:test.db" }));
  const done = await penstock(["migrate", "--config", config]);
  assert.deepEqual([done.code, done.stdout], [0, "nothing to do: the store has the layout of this version\n"]);
  const store = await openSqliteStore({ file, logger: silent, layout: NEWER });
  const named = { file, where: "sqlite:test.db" };
  await assert.rejects(migrateSqlite(named, { report: () => {} }), /in use by another process/);
  await store.close();
  const refused = await penstock(["migrate", "--config", config]);
  assert.equal(refused.code, 1);
  assert.match(
    refused.stderr,
    /^penstock: sqlite:test\.db was written by a newer version \(schema 5; this one knows 3\).*\n$/,
  );
});

/** What the release before wrote: conversations, executions and traces, some of them large. */
const SCHEMA_2 = resolve("test/fixtures/stores/schema-2.db");
/** What a release of that schema knows. */
const SCHEMA_2_LAYOUT: SqliteLayout = { version: 2, steps: [] };

interface StoredRow {
  key: string;
  value: string | number;
  revision: number;
}

/** As they lie in a file of schema 2. */
async function rowsOf2(t: TestContext, file: string): Promise<StoredRow[]> {
  const { run, close } = await otherConnection(t, file);
  const rows = (await run("SELECT key, value, revision FROM rows ORDER BY key")) as StoredRow[];
  await close();
  return rows;
}

/** All rows of the store are those, large values lie apart, and the file is whole. */
async function assertUpgraded(t: TestContext, file: string, old: readonly StoredRow[]): Promise<void> {
  const store = await openSqliteStore({ file, logger: silent });
  assert.deepEqual(
    await store.getMany(old.map(({ key }) => key)),
    old.map((row) => ({ ...row, value: String(row.value) })),
  );
  await store.close();
  assert.deepEqual(await strayValues(file), []);
  const { run, close } = await otherConnection(t, file);
  const large = old.filter(({ value }) => Buffer.byteLength(String(value)) > 1_000);
  assert.ok(large.length > 5);
  const [count] = (await run(
    "SELECT (SELECT count(*) FROM rows) AS rows, (SELECT count(*) FROM large_values) AS large",
  )) as { rows: number; large: number }[];
  assert.equal(count!.rows, old.length);
  assert.ok(count!.large >= large.length);
  assert.deepEqual(await run("SELECT key FROM rows WHERE octet_length(value) > 1000"), []);
  assert.deepEqual(await run("PRAGMA integrity_check"), [{ integrity_check: "ok" }]);
  await close();
}

test("store sqlite: a file that a release of schema 2 wrote has all its rows and revisions after a start, its backup is as it was, and that release refuses it", async (t) => {
  const file = join(await temporaryFolder(t), "test.db");
  await copyFile(SCHEMA_2, file);
  const old = await rowsOf2(t, file);
  const { logger, lines } = recordingLogger();
  await (await openSqliteStore({ file, where: "sqlite:test.db", logger })).close();
  const [backup] = await backupsOf(file);
  assert.deepEqual(lines, [
    `info: sqlite:test.db: the backup before the upgrade is ${backup}`,
    "info: sqlite:test.db: upgraded from schema 2 to 3: moves large values out of the tree of keys",
  ]);
  await assertUpgraded(t, file, old);
  assert.deepEqual(await rowsOf2(t, backup!), old);
  const refused =
    /was written by a newer version \(schema 3; this one knows 2\): run that version, or name another file$/;
  await assert.rejects(openSqliteStore({ file, logger: silent, layout: SCHEMA_2_LAYOUT }), refused);
  await restoreSqlite({ file, where: "sqlite:test.db" }, backup!);
  assert.deepEqual(await rowsOf2(t, file), old);
  await assertUpgraded(t, file, old);
});

test("GET /api/memory and GET /workflows/executions show what a release of schema 2 stored", async (t) => {
  const file = join(await temporaryFolder(t), "test.db");
  await copyFile(SCHEMA_2, file);
  const service = await startService(
    t,
    manifestWith(
      {},
      {
        store: `sqlite:${file}`,
        memory: { default: {} },
        workflows: { keep: { steps: [{ id: "one", andThen: { set: { n: "{{ input.n }}" } } }] } },
      },
    ),
  );
  const get = async (path: string) => ((await (await service.get(path)).json()) as { data: Loose }).data;
  const said = async (id: string) =>
    (await get(`/api/memory/conversations/${id}/messages`)).messages.map(({ content }: Loose) => content);
  const words = (times: number) => "Words, wörds, 語 and 😀. ".repeat(times);
  assert.deepEqual(await said("second"), [words(715), words(34), "last"]);
  assert.deepEqual(
    await said("first"),
    Array.from({ length: 12 }, (_, n) => (n % 3 === 0 ? words(72) : `short ${n}`)),
  );
  const executions = (await get("/workflows/executions")).map(({ input }: Loose) => input.n);
  assert.deepEqual(executions, ["small", words(286)]);
});

/** A file as schema 2 had it, with large values between small ones. */
async function fileOf2(t: TestContext): Promise<{ file: string; rows: StoredRow[] }> {
  const file = join(await temporaryFolder(t), "test.db");
  const { run, close } = await otherConnection(t, file);
  await run("PRAGMA journal_mode = WAL");
  await run(
    "CREATE TABLE rows (key TEXT NOT NULL PRIMARY KEY, value NOT NULL, revision INTEGER NOT NULL) WITHOUT ROWID",
  );
  await run(`CREATE TRIGGER removal BEFORE INSERT ON rows WHEN NEW.value IS NULL
    BEGIN DELETE FROM rows WHERE key = NEW.key; SELECT RAISE(IGNORE); END`);
  await run("INSERT INTO penstock (key, value) VALUES ('schema', '2'), ('revision', '16777217')");
  await run(`WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 2500)
    INSERT INTO rows SELECT printf('k/%04d', n), iif(n % 2, n, hex(zeroblob(iif(n % 500, 700, 2000000))) || n), n FROM n`);
  const rows = (await run("SELECT key, value, revision FROM rows ORDER BY key")) as StoredRow[];
  await close();
  return { file, rows };
}

test("penstock migrate: a process that is killed in the middle leaves the file of schema 2 as it was, and the next one brings it to the end", async (t) => {
  const { file, rows } = await fileOf2(t);
  for (const [sql, nth] of [
    ["ALTER TABLE", 1],
    ["INSERT INTO rows", 1],
    ["INSERT INTO rows", 3],
    ["INSERT OR REPLACE INTO penstock", 1],
    ["COMMIT", 1],
  ] as const) {
    const { line } = otherProcess(t, dyingIn(sql, nth, file));
    assert.deepEqual([await line(), await line()], ["dead", undefined], sql);
    assert.equal((await contentOf(t, file)).version, "2", `killed in ${sql}`);
    assert.deepEqual(await rowsOf2(t, file), rows, `killed in ${sql}`);
  }
  // What is done is done, wherever the process ends after it.
  const { line } = otherProcess(t, dyingIn("PRAGMA wal_checkpoint", 1, file));
  assert.deepEqual([await line(), await line()], ["dead", undefined]);
  assert.equal((await contentOf(t, file)).version, "3");
  await assertUpgraded(t, file, rows);
});

/** Migrates, and kills itself in the nth statement that begins so: SQLite's thread has it, unless it is the last one, and works on it. */
const dyingIn = (begin: string, nth: number, file: string): string => `
  import { writeSync } from "node:fs";
  import { createRequire } from "node:module";
  import { migrateSqlite } from ${JSON.stringify(pathToFileURL(resolve("core/storage/sqlite-owned.ts")).href)};
  const { resolve } = createRequire(${JSON.stringify(pathToFileURL(resolve("package.json")).href)});
  const { prototype } = createRequire(resolve("@keyv/sqlite"))("sqlite3").Database;
  const { all } = prototype;
  let count = 0;
  prototype.all = function (sql, ...given) {
    if (!sql.startsWith(${JSON.stringify(begin)}) || ++count < ${nth}) return all.call(this, sql, ...given);
    if (sql !== "COMMIT") all.call(this, sql, ...given);
    for (const end = performance.now() + 5; performance.now() < end; );
    writeSync(1, "dead\\n");
    process.kill(process.pid, "SIGKILL");
  };
  await migrateSqlite({ file: ${JSON.stringify(file)}, where: "sqlite:test.db" }, { report() {} });
`;

const NEWER_POSTGRES: PostgresLayout = {
  version: NEXT,
  steps: [
    {
      from: LAYOUT_VERSION,
      what: "moves what was at old/ to new/",
      apply: async ({ query, table }) =>
        void (await query({ text: `UPDATE ${table} SET key = 'new/' || substr(key, 5) WHERE key LIKE 'old/%'` })),
    },
  ],
};

test("penstock migrate on PostgreSQL: a process of the older release reads and writes nothing from then on, says why, and does not start again", {
  skip,
}, async (t) => {
  const url = await db.createDatabase(t);
  const old = await openPostgresStore(url, { logger: silent });
  t.after(() => old.close());
  await old.commit({ put: [["old/a", '"1"']] });
  const lines: string[] = [];
  const migrate = (layout: PostgresLayout) =>
    migratePostgres(url, { layout, logger: silent, report: (line) => void lines.push(line) });
  assert.equal(await migrate(NEWER_POSTGRES), true);
  assert.deepEqual(lines, [`upgraded from schema ${LAYOUT_VERSION} to ${NEXT}: moves what was at old/ to new/`]);
  const upgraded = /a newer version has upgraded the database/;
  const refused = (error: unknown) => {
    assert.equal((error as { kind?: unknown }).kind, "unavailable");
    assert.match((error as Error).message, upgraded);
    return true;
  };
  await assert.rejects(old.get("old/a"), refused);
  await assert.rejects(old.commit({ put: [["old/a", '"2"']] }), refused);
  await assert.rejects(old.commit({ put: [["old/b", '"2"']], expect: [["old/b", null]] }), refused);
  assert.match((await old.problem()) ?? "", upgraded);
  await assert.rejects(
    openPostgresStore(url, { logger: silent }),
    /was written by a newer version \(schema 3; this one knows 2\): run that version, or name another database/,
  );
  assert.deepEqual(await db.query("SELECT key FROM penstock_3", url), [{ key: "new/a" }]);
  assert.equal(await migrate(NEWER_POSTGRES), false);
});

test("penstock migrate on PostgreSQL: a step that fails leaves the database as it was, and the older release goes on", {
  skip,
}, async (t) => {
  const url = await db.createDatabase(t);
  const store = await openPostgresStore(url, { logger: silent });
  t.after(() => store.close());
  await store.commit({ put: [["old/a", '"1"']] });
  const broken: PostgresLayout = {
    ...NEWER_POSTGRES,
    steps: [
      {
        from: LAYOUT_VERSION,
        what: "fails",
        apply: async ({ query, table }) => {
          await query({ text: `DELETE FROM ${table}` });
          await query({ text: "SELECT 1 / 0" });
        },
      },
    ],
  };
  await assert.rejects(migratePostgres(url, { layout: broken, logger: silent, report: () => {} }), /division by zero/);
  assert.equal((await store.get("old/a"))?.value, '"1"');
  await store.commit({ put: [["old/a", '"2"']] });
});
