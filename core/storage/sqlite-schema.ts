/** The tables of a SQLite file, their version, and the revisions that the file has seen. */
import { SQLITE_META, type SqliteConnection } from "./sqlite-connection.ts";

/** Rises with every change of tables and keys that an older version could not work with. */
const VERSION = 2;

/** Revisions are reserved this many at a time, so that a commit need not write the last one. */
const REVISIONS = 2 ** 24;

/** `value` has no type of its own: text is a value, an integer is a counter. */
const ROWS = `CREATE TABLE IF NOT EXISTS rows (
  key TEXT NOT NULL PRIMARY KEY, value NOT NULL, revision INTEGER NOT NULL
) WITHOUT ROWID`;

/** A value of NULL deletes, so that a statement which writes many rows can delete others too. Older versions never write one. */
const REMOVAL = `CREATE TRIGGER IF NOT EXISTS removal BEFORE INSERT ON rows WHEN NEW.value IS NULL
  BEGIN DELETE FROM rows WHERE key = NEW.key; SELECT RAISE(IGNORE); END`;

async function meta(connection: SqliteConnection, key: string): Promise<string | undefined> {
  const [row] = await connection.query<{ value: string }>(`SELECT value FROM ${SQLITE_META} WHERE key = ?`, key);
  return row?.value;
}

const setMeta = (connection: SqliteConnection, key: string, value: string): Promise<unknown[]> =>
  connection.query(`INSERT OR REPLACE INTO ${SQLITE_META} (key, value) VALUES (?, ?)`, key, value);

/** @throws Error for a person when the file is of another version */
export async function prepareSqliteSchema(connection: SqliteConnection, where: string): Promise<void> {
  const version = Number((await meta(connection, "schema")) ?? 0);
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
  await connection.query(ROWS);
  await connection.query(REMOVAL);
  if (version === 0) await setMeta(connection, "schema", String(VERSION));
}

export interface Revisions {
  /** The first of `count` numbers that no row of the file has, nor had. One call at a time, and in no transaction. */
  take(count: number): Promise<number>;
  /** Nothing could be written: the file may be another one by the next time, and what was reserved in this one lost. */
  forget(): void;
}

/**
 * A row that was deleted and written again must not have a revision which somebody remembers from before, so they only rise,
 * and a restart goes on where none was given.
 */
export function createRevisions(connection: SqliteConnection): Revisions {
  let next = 1;
  let end = 1;
  return {
    async take(count) {
      if (next + count > end) {
        const reserved = Number((await meta(connection, "revision")) ?? 1);
        const first = Math.max(next, reserved);
        await setMeta(connection, "revision", String(first + REVISIONS));
        [next, end] = [first, first + REVISIONS];
      }
      next += count;
      return next - count;
    },
    forget() {
      end = next;
    },
  };
}
