/** The tables of a SQLite file, their version, and the numbering of revisions. */
import { LAYOUT_VERSION, type Layout, type LayoutStep, pendingSteps } from "./layout.ts";
import { SQLITE_META, type SqliteConnection } from "./sqlite-connection.ts";

export type SqliteLayout = Layout<SqliteConnection>;

/** A step is given a connection in a transaction. */
export const SQLITE_LAYOUT: SqliteLayout = { version: LAYOUT_VERSION, steps: [] };

/** Revisions are reserved in blocks, so that commits need not store the last one. */
const REVISIONS_PER_BLOCK = 2 ** 24;

/** `value` has no declared type: text is a value, an integer is a counter. */
const CREATE_ROWS = `CREATE TABLE IF NOT EXISTS rows (
  key TEXT NOT NULL PRIMARY KEY, value NOT NULL, revision INTEGER NOT NULL
) WITHOUT ROWID`;

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

/** Runs the steps in one transaction: the file is of the old version or of the new one. */
export async function upgradeSqliteSchema(
  connection: SqliteConnection,
  steps: readonly LayoutStep<SqliteConnection>[],
): Promise<void> {
  await connection.query("BEGIN IMMEDIATE");
  try {
    for (const { apply, from } of steps) {
      await apply(connection);
      await setMeta(connection, "schema", String(from + 1));
    }
    await connection.query("COMMIT");
  } catch (error) {
    await connection.query("ROLLBACK").catch(() => {});
    throw error;
  }
}

/** Creates what is missing in a file of the present version, or in a new one. */
export async function prepareSqliteSchema(connection: SqliteConnection, version = LAYOUT_VERSION): Promise<void> {
  await connection.query(CREATE_ROWS);
  await connection.query(CREATE_REMOVAL_TRIGGER);
  if ((await sqliteVersion(connection)) === 0) await setMeta(connection, "schema", String(version));
}

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
