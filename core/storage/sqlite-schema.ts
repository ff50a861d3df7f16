/** The tables of a SQLite file, their version, and the numbering of revisions. */
import { SQLITE_META, type SqliteConnection } from "./sqlite-connection.ts";

/** Rises with every incompatible change of tables or keys. */
const VERSION = 2;

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

/** @throws Error with a message for the user when the file is of another version */
export async function prepareSqliteSchema(connection: SqliteConnection, where: string): Promise<void> {
  const version = Number((await getMeta(connection, "schema")) ?? 0);
  if (version > VERSION) {
    throw new Error(
      `${where} was written by a newer version (schema ${version}; this one knows ${VERSION}): run that version, or name another file`,
    );
  }
  if (version > 0 && version < VERSION) {
    throw new Error(
      `${where} was written by a version before the first release (schema ${version}; this one needs ${VERSION}): name another file`,
    );
  }
  await connection.query(CREATE_ROWS);
  await connection.query(CREATE_REMOVAL_TRIGGER);
  if (version === 0) await setMeta(connection, "schema", String(VERSION));
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
