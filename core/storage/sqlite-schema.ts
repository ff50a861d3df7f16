/** The tables of a SQLite file, their version, and the numbering of revisions. */

import { stat } from "node:fs/promises";
import KeyvSqlite from "@keyv/sqlite";
import { messageOf } from "../lib/errors.ts";
import { type Dialect, groupsOf } from "./bounded-reader.ts";
import { type LayoutStep, pendingSteps, type StoreLayout } from "./layout.ts";
import { EXCERPT_CHARACTERS } from "./store.ts";

// One connection to a SQLite file through Keyv's adapter, which is opened again when it has become unusable.

/** After these errors the connection may stay unusable: the file was replaced, or the disk had an error. */
const STALE_CONNECTION = /^SQLITE_(IOERR|READONLY|CANTOPEN|CORRUPT|NOTADB|MISUSE|PROTOCOL)/;

/** The table of Keyv's adapter, which keeps the version of the schema and the revisions: key, value. */
export const SQLITE_META = "penstock";

export interface SqliteConnection {
  /** Runs one statement, after those that were given before, and returns its rows. Rejects with the driver's error. */
  query<T>(sql: string, ...parameters: unknown[]): Promise<T[]>;
  close(): Promise<void>;
}

/** The driver's name of a failure, such as `SQLITE_FULL`. */
export const sqliteErrorCode = (error: unknown): string => String((error as { code?: unknown } | null)?.code ?? "");

interface SqliteConnectionOptions {
  /** Absolute path. */
  file: string;
  /** How many milliseconds a statement waits for a lock of another process, such as a backup. */
  busyTimeout: number;
  /** Run in order, every time the connection is opened. */
  pragmas: readonly string[];
}

export async function openSqliteConnection(options: SqliteConnectionOptions): Promise<SqliteConnection> {
  const { file, busyTimeout, pragmas } = options;
  let opening: Promise<KeyvSqlite> | undefined;
  let closed = false;
  let isFirst = true;

  async function open(): Promise<KeyvSqlite> {
    if (!isFirst) await requireFile(file);
    isFirst = false;
    const adapter = new KeyvSqlite({ uri: file, table: SQLITE_META, busyTimeout });
    try {
      // A query must be waiting from the start: the adapter reports a failed opening only to such a query.
      for (const pragma of pragmas) await adapter.query(`PRAGMA ${pragma}`);
    } catch (error) {
      adapter.close().catch(() => {});
      throw error;
    }
    return adapter;
  }

  function current(): Promise<KeyvSqlite> {
    if (closed) throw Object.assign(new Error("the connection is closed"), { code: "SQLITE_MISUSE" });
    if (opening === undefined) {
      opening = open();
      opening.catch(() => {
        opening = undefined;
      });
    }
    return opening;
  }

  async function run<T>(sql: string, parameters: readonly unknown[]): Promise<T[]> {
    const used = current();
    const adapter = await used;
    try {
      return await adapter.query(sql, ...parameters);
    } catch (error) {
      if (STALE_CONNECTION.test(sqliteErrorCode(error)) && opening === used) {
        opening = undefined;
        adapter.close().catch(() => {});
      }
      throw error;
    }
  }

  await current();
  /**
   * Settles with the statement before. SQLite runs one at a time on a connection, whoever waits: the driver ends a statement on the main
   * thread, which would be held there for as long as another one takes.
   */
  let turn: Promise<unknown> = Promise.resolve();
  return {
    query: <T>(sql: string, ...parameters: unknown[]) => {
      const result = turn.then(() => run<T>(sql, parameters));
      turn = result.catch(() => {});
      return result;
    },
    close: async () => {
      closed = true;
      const adapter = await opening?.catch(() => undefined);
      await adapter?.close();
    },
  };
}

/** A connection that is opened anew would make an empty file in the place of one that was moved away. */
async function requireFile(file: string): Promise<void> {
  await stat(file).catch((error) => {
    throw Object.assign(new Error(messageOf(error), { cause: error }), { code: "SQLITE_READONLY_DBMOVED" });
  });
}

export type SqliteLayout = StoreLayout<SqliteConnection>;

/** Revisions are reserved in blocks, so that commits need not store the last one. */
const REVISIONS_PER_BLOCK = 2 ** 24;

/**
 * `value` has no declared type: text is a value, an integer is a counter. Of a large value it is an excerpt, `size` its bytes, and
 * `large_id` where it is.
 */
const CREATE_ROWS = `CREATE TABLE IF NOT EXISTS rows (
  key TEXT NOT NULL PRIMARY KEY, value NOT NULL, revision INTEGER NOT NULL, size INTEGER, large_id INTEGER
) WITHOUT ROWID`;

/**
 * The longest key and value that lie beside each other: as much as a page of 4 KiB takes of one row of a tree of keys. Of a longer row a
 * part lies on other pages, and SQLite reads all of it whenever it compares its key with another one, so that every search of a
 * neighbouring key would read it.
 */
const MAX_ROW_BYTES = 980;

const isLarge = (row = "") => `length(${row}key) + octet_length(${row}value) > ${MAX_ROW_BYTES}`;

const excerptOf = (value: string) =>
  `substr(${value}, 1, ${EXCERPT_CHARACTERS}) || substr(${value}, -${EXCERPT_CHARACTERS})`;

const removeLargeValue = (change: string) => `CREATE TRIGGER IF NOT EXISTS large_${change}
  AFTER ${change} ON rows WHEN OLD.large_id IS NOT NULL BEGIN DELETE FROM large_values WHERE id = OLD.large_id; END`;

/** Large values have a table by number. Triggers move them, and remove them with the row or its value: always in its own statement. */
const CREATE_LARGE_VALUES = [
  "CREATE TABLE IF NOT EXISTS large_values (id INTEGER PRIMARY KEY, value TEXT NOT NULL)",
  `CREATE TRIGGER IF NOT EXISTS large_put BEFORE INSERT ON rows WHEN ${isLarge("NEW.")} BEGIN
    INSERT INTO large_values (value) VALUES (NEW.value);
    INSERT INTO rows (key, value, revision, size, large_id)
      VALUES (NEW.key, ${excerptOf("NEW.value")}, NEW.revision, octet_length(NEW.value), last_insert_rowid())
      ON CONFLICT (key) DO UPDATE
        SET value = excluded.value, revision = excluded.revision, size = excluded.size, large_id = excluded.large_id;
    SELECT RAISE(IGNORE);
  END`,
  removeLargeValue("UPDATE"),
  removeLargeValue("DELETE"),
];

/** Expressions about a row of `rows`. */
export const SQLITE: Dialect = {
  char: "char",
  whole: "iif(size IS NULL, value, (SELECT large_values.value FROM large_values WHERE id = large_id))",
  size: "ifnull(size, octet_length(value))",
  excerpt: `iif(size IS NULL, ${excerptOf("value")}, value)`,
};

/** Bounds what a step takes from memory. */
const MOVED_TOGETHER = { rows: 1_000, bytes: 8 * 1024 * 1024 };

async function moveLargeValues(connection: SqliteConnection): Promise<void> {
  await connection.query("ALTER TABLE rows ADD COLUMN size INTEGER");
  await connection.query("ALTER TABLE rows ADD COLUMN large_id INTEGER");
  for (const statement of CREATE_LARGE_VALUES) await connection.query(statement);
  for (let after = ""; ; ) {
    const found = await connection.query<{ key: string; size: number }>(
      `SELECT key, octet_length(value) AS size FROM rows WHERE key > ? AND ${isLarge()} ORDER BY key LIMIT ${MOVED_TOGETHER.rows}`,
      after,
    );
    for (const group of groupsOf(found, ({ size }) => size, MOVED_TOGETHER.bytes)) {
      // Written again, they are moved by the trigger.
      await connection.query(
        `INSERT INTO rows (key, value, revision) SELECT key, value, revision FROM rows WHERE key BETWEEN ? AND ? AND ${isLarge()}`,
        group[0]!.key,
        group.at(-1)!.key,
      );
    }
    if (found.length < MOVED_TOGETHER.rows) return;
    after = found.at(-1)!.key;
  }
}

/** A step is given a connection in a transaction. */
export const SQLITE_LAYOUT: SqliteLayout = {
  version: 3,
  steps: [{ from: 2, what: "moves large values out of the tree of keys", apply: moveLargeValues }],
};

/** Inserting NULL deletes the row, so that one statement can write and delete rows. Older versions never write NULL. */
const CREATE_REMOVAL_TRIGGER = `CREATE TRIGGER IF NOT EXISTS removal BEFORE INSERT ON rows WHEN NEW.value IS NULL
  BEGIN DELETE FROM rows WHERE key = NEW.key; SELECT RAISE(IGNORE); END`;

async function getMeta(connection: SqliteConnection, key: string): Promise<string | undefined> {
  const [row] = await connection.query<{ value: string }>(`SELECT value FROM ${SQLITE_META} WHERE key = ?`, key);
  return row?.value;
}

const setMeta = (connection: SqliteConnection, key: string, value: string): Promise<unknown[]> =>
  connection.query(`INSERT OR REPLACE INTO ${SQLITE_META} (key, value) VALUES (?, ?)`, key, value);

/** 0 for a file in which nothing was written yet. */
export const sqliteVersion = async (connection: SqliteConnection): Promise<number> =>
  Number((await getMeta(connection, "schema")) ?? 0);

/**
 * What has to be done with a file before this release can use it.
 *
 * @throws Error with a message for the user when this release cannot use it
 */
export async function pendingSqliteSteps(
  connection: SqliteConnection,
  where: string,
  layout = SQLITE_LAYOUT,
): Promise<readonly LayoutStep<SqliteConnection>[]> {
  const version = await sqliteVersion(connection);
  return version === 0 ? [] : pendingSteps(layout, version, { where, instead: "another file" });
}

async function inTransaction(connection: SqliteConnection, work: () => Promise<void>): Promise<void> {
  await connection.query("BEGIN IMMEDIATE");
  try {
    await work();
    await connection.query("COMMIT");
  } catch (error) {
    await connection.query("ROLLBACK").catch(() => {});
    throw error;
  }
}

/** Runs the steps in one transaction: the file is of the old version or of the new one. */
export const upgradeSqliteSchema = (
  connection: SqliteConnection,
  steps: readonly LayoutStep<SqliteConnection>[],
): Promise<void> =>
  inTransaction(connection, async () => {
    for (const { apply, from } of steps) {
      await apply(connection);
      await setMeta(connection, "schema", String(from + 1));
    }
  });

/** Creates what is missing in a file of the present version, or in a new one. */
export const prepareSqliteSchema = (connection: SqliteConnection, version = SQLITE_LAYOUT.version): Promise<void> =>
  inTransaction(connection, async () => {
    for (const statement of [CREATE_ROWS, CREATE_REMOVAL_TRIGGER, ...CREATE_LARGE_VALUES])
      await connection.query(statement);
    if ((await sqliteVersion(connection)) === 0) await setMeta(connection, "schema", String(version));
  });

export interface Revisions {
  /** Takes `count` numbers that no row of the file has or ever had, and returns the first. One call at a time, outside of transactions. */
  take(count: number): Promise<number>;
  /** To be called after a failed write: the file may be replaced before the next one, so that a new block must be reserved in it. */
  forget(): void;
}

/**
 * Revisions only rise, also over restarts: a row that is deleted and written again must not get a revision that somebody may still
 * expect from before.
 */
export function createRevisions(connection: SqliteConnection): Revisions {
  let next = 1;
  let end = 1;
  return {
    async take(count) {
      if (next + count > end) {
        const reserved = Number((await getMeta(connection, "revision")) ?? 1);
        const first = Math.max(next, reserved);
        await setMeta(connection, "revision", String(first + REVISIONS_PER_BLOCK));
        [next, end] = [first, first + REVISIONS_PER_BLOCK];
      }
      next += count;
      return next - count;
    },
    forget() {
      end = next;
    },
  };
}
