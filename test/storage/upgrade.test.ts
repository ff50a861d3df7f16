/** Stores of an older layout are brought to a newer one, and a release refuses a layout that is newer than its own. */
import assert from "node:assert/strict";
import { readdir, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { after, type TestContext, test } from "node:test";
import { pino } from "pino";
import { LAYOUT_VERSION } from "../../core/storage/layout.ts";
import type { PostgresLayout } from "../../core/storage/postgres-schema.ts";
import { openPostgresStore } from "../../core/storage/postgres-store.ts";
import { migratePostgres } from "../../core/storage/postgres-upgrade.ts";
import { openSqliteConnection } from "../../core/storage/sqlite-connection.ts";
import { migrateSqlite } from "../../core/storage/sqlite-owned.ts";
import { SQLITE_LAYOUT, type SqliteLayout } from "../../core/storage/sqlite-schema.ts";
import { openSqliteStore } from "../../core/storage/sqlite-store.ts";
import { upgradeSqlite } from "../../core/storage/sqlite-upgrade.ts";
import { penstock } from "../support/command-line.ts";
import { NO_POSTGRES, type PostgresServer, sharedPostgres } from "../support/postgres.ts";
import { manifestWith } from "../support/service.ts";
import { otherConnection, recordingLogger, temporaryFolder } from "../support/storage.ts";

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
  const url = await db.createDatabase();
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
  const url = await db.createDatabase();
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
