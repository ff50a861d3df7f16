/** Writes a group of commits in one transaction of SQLite. */
import { prefixEnd } from "./encoding.ts";
import { type Change, type Changes, expectedKeys, mergeCommits } from "./group.ts";
import { unpack } from "./packed.ts";
import { SQLITE_META, type SqliteConnection, sqliteErrorCode } from "./sqlite-connection.ts";
import type { Revisions } from "./sqlite-schema.ts";
import type { Commit } from "./store.ts";

const REVISIONS_OF_KEYS = `SELECT group_concat(key || char(31) || revision || char(31), char(30)) AS packed
  FROM rows WHERE key IN (SELECT value FROM json_each(?))`;

/**
 * The parameter is a JSON object by key: a text is put, a number is added, and null deletes (by the trigger of sqlite-schema.ts). All in
 * one statement, since each costs two switches between threads. Adding to a row that is not a counter gives NULL, which the column refuses.
 */
const WRITE = `INSERT INTO rows (key, value, revision) SELECT key, value, ?2 FROM json_each(?1) WHERE true
  ON CONFLICT (key) DO UPDATE SET revision = excluded.revision, value = iif(typeof(excluded.value) = 'text', excluded.value,
    iif(CAST(CAST(rows.value AS INTEGER) AS TEXT) = CAST(rows.value AS TEXT), rows.value + excluded.value, NULL))`;

const CLEAR = "DELETE FROM rows WHERE key >= ? AND key < ?";

/** Errors that the content of a commit causes, so that a retry would fail again. */
const CONTENT_ERRORS: ReadonlyMap<string, string> = new Map([
  ["SQLITE_CONSTRAINT", "a row that is added to is not a counter"],
  ["SQLITE_TOOBIG", "a value is too large"],
]);

interface SqliteWriter {
  /** Resolves when the transaction is on disk, with the revision or the error of each commit. */
  write(commits: readonly Commit[]): Promise<readonly (number | Error)[]>;
  /** Rejects when no transaction can be written now. Changes nothing. */
  probe(): Promise<void>;
  /** Runs work of others between two transactions. */
  inTurn<T>(work: () => Promise<T>): Promise<T>;
}

export function createSqliteWriter(connection: SqliteConnection, revisions: Revisions): SqliteWriter {
  /** Transactions take turns, since statements of two of them on one connection would mix. */
  let turn: Promise<unknown> = Promise.resolve();

  function inTurn<T>(work: () => Promise<T>): Promise<T> {
    const result = turn.then(work);
    turn = result.catch(() => revisions.forget());
    return result;
  }

  async function transaction<T>(work: () => Promise<T>): Promise<T> {
    await connection.query("BEGIN IMMEDIATE");
    try {
      const result = await work();
      await connection.query("COMMIT");
      return result;
    } catch (error) {
      // After some failures SQLite has rolled back by itself, and refuses ROLLBACK: the first error is the one that counts.
      await connection.query("ROLLBACK").catch(() => {});
      throw error;
    }
  }

  async function readRevisions(keys: readonly string[]): Promise<Map<string, number>> {
    const found = new Map<string, number>();
    if (keys.length === 0) return found;
    const [row] = await connection.query<{ packed: string | null }>(REVISIONS_OF_KEYS, JSON.stringify(keys));
    for (const { key, revision } of unpack(row?.packed ?? null)) found.set(key, revision);
    return found;
  }

  async function apply({ clear, rows }: Changes): Promise<void> {
    for (const prefix of clear) await connection.query(CLEAR, prefix, prefixEnd(prefix));
    for (const [revision, written] of byRevision(rows)) await connection.query(WRITE, changesJson(written), revision);
  }

  /**
   * Expected revisions are read before the transaction. That is safe: this process holds the lock of the file, and groups take turns. A
   * single statement is a transaction by itself.
   */
  const writeTogether = (commits: readonly Commit[]) =>
    inTurn(async () => {
      const stored = await readRevisions(expectedKeys(commits));
      const base = await revisions.take(commits.length);
      const { changes, results } = mergeCommits(commits, stored, base);
      if (changes.clear.length === 0 && changes.rows.every(({ revision }) => revision === base)) await apply(changes);
      else await transaction(() => apply(changes));
      return results;
    });

  /** When the content of one commit is refused, the group is written one by one, so that it fails alone. */
  async function write(commits: readonly Commit[]): Promise<readonly (number | Error)[]> {
    try {
      return await writeTogether(commits);
    } catch (error) {
      const refusal = CONTENT_ERRORS.get(sqliteErrorCode(error));
      if (refusal === undefined) throw error;
      if (commits.length === 1) return [new Error(refusal, { cause: error })];
    }
    const results: (number | Error)[] = [];
    for (const commit of commits) results.push(...(await write([commit])));
    return results;
  }

  return {
    write,
    inTurn,
    probe: () =>
      inTurn(() =>
        transaction(async () => {
          // Large enough to fail on a full disk.
          await connection.query(
            `INSERT OR REPLACE INTO ${SQLITE_META} (key, value) VALUES ('probe', hex(zeroblob(16384)))`,
          );
          await connection.query(`DELETE FROM ${SQLITE_META} WHERE key = 'probe'`);
        }),
      ),
  };
}

/** There is nearly always only one revision: see `mergeCommits`. */
function byRevision(rows: readonly Change[]): Map<number, Change[]> {
  const groups = new Map<number, Change[]>();
  for (const row of rows) {
    const group = groups.get(row.revision);
    if (group === undefined) groups.set(row.revision, [row]);
    else group.push(row);
  }
  return groups;
}

function changesJson(rows: readonly Change[]): string {
  let json = "";
  for (const { key, kind, value } of rows) {
    const shown = kind === "put" ? JSON.stringify(value) : kind === "add" ? value : "null";
    json += `${json === "" ? "{" : ","}${JSON.stringify(key)}:${shown}`;
  }
  return `${json}}`;
}
