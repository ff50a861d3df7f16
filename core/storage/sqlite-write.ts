/** A group of commits as one transaction of SQLite. */

import { prefixEnd } from "./encoding.ts";
import { type Change, type Changes, expectedKeys, mergeCommits } from "./group.ts";
import { unpack } from "./packed.ts";
import { SQLITE_META, type SqliteConnection, sqliteErrorCode } from "./sqlite-connection.ts";
import type { Revisions } from "./sqlite-schema.ts";
import type { Commit } from "./store.ts";

const EXPECTED = `SELECT group_concat(key || char(31) || revision || char(31), char(30)) AS packed
  FROM rows WHERE key IN (SELECT value FROM json_each(?))`;

/**
 * An object of keys: a text is put, a number added, and null deletes (a trigger, sqlite-schema.ts). All in one statement, for each
 * is two trips to another thread. What is added to without being a counter becomes NULL, which the column refuses.
 */
const WRITE = `INSERT INTO rows (key, value, revision) SELECT key, value, ?2 FROM json_each(?1) WHERE true
  ON CONFLICT (key) DO UPDATE SET revision = excluded.revision, value = iif(typeof(excluded.value) = 'text', excluded.value,
    iif(CAST(CAST(rows.value AS INTEGER) AS TEXT) = CAST(rows.value AS TEXT), rows.value + excluded.value, NULL))`;

const CLEAR = "DELETE FROM rows WHERE key >= ? AND key < ?";

/** What SQLite says of a commit that it will never take. */
const REFUSALS: ReadonlyMap<string, string> = new Map([
  ["SQLITE_CONSTRAINT", "what is added to is no counter"],
  ["SQLITE_TOOBIG", "a value is too large"],
]);

interface SqliteWriter {
  /** One transaction; resolves when it is on disk: with the revision of each commit, or why it did not happen. */
  write(commits: readonly Commit[]): Promise<readonly (number | Error)[]>;
  /** Whether a transaction can be written now; rejects when not. Leaves nothing. */
  probe(): Promise<void>;
}

export function createSqliteWriter(connection: SqliteConnection, revisions: Revisions): SqliteWriter {
  /** Statements of two transactions on one connection would be one transaction. */
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
      // SQLite rolls back some failures itself, and refuses then: the first error is the one that counts.
      await connection.query("ROLLBACK").catch(() => {});
      throw error;
    }
  }

  async function revisionsOf(keys: readonly string[]): Promise<Map<string, number>> {
    const found = new Map<string, number>();
    if (keys.length === 0) return found;
    const [row] = await connection.query<{ packed: string | null }>(EXPECTED, JSON.stringify(keys));
    for (const { key, revision } of unpack(row?.packed ?? null)) found.set(key, revision);
    return found;
  }

  async function apply({ clear, rows }: Changes): Promise<void> {
    for (const prefix of clear) await connection.query(CLEAR, prefix, prefixEnd(prefix));
    for (const [revision, written] of byRevision(rows)) await connection.query(WRITE, objectOf(written), revision);
  }

  /**
   * What is expected is read before anything is written: nobody else writes, for this process holds the file's lock, and here one
   * group has its turn after the other. A single statement is a transaction by itself.
   */
  const together = (commits: readonly Commit[]) =>
    inTurn(async () => {
      const stored = await revisionsOf(expectedKeys(commits));
      const base = await revisions.take(commits.length);
      const { changes, results } = mergeCommits(commits, stored, base);
      if (changes.clear.length === 0 && changes.rows.every(({ revision }) => revision === base)) await apply(changes);
      else await transaction(() => apply(changes));
      return results;
    });

  /** A commit that SQLite refuses for what is in it fails alone, and not with its whole group. */
  async function write(commits: readonly Commit[]): Promise<readonly (number | Error)[]> {
    try {
      return await together(commits);
    } catch (error) {
      const refusal = REFUSALS.get(sqliteErrorCode(error));
      if (refusal === undefined) throw error;
      if (commits.length === 1) return [new Error(refusal, { cause: error })];
    }
    const results: (number | Error)[] = [];
    for (const commit of commits) results.push(...(await write([commit])));
    return results;
  }

  return {
    write,
    probe: () =>
      inTurn(() =>
        transaction(async () => {
          // Large enough that a full disk shows.
          await connection.query(
            `INSERT OR REPLACE INTO ${SQLITE_META} (key, value) VALUES ('probe', hex(zeroblob(16384)))`,
          );
          await connection.query(`DELETE FROM ${SQLITE_META} WHERE key = 'probe'`);
        }),
      ),
  };
}

/** Nearly always one: see `foldGroup`. */
function byRevision(rows: readonly Change[]): Map<number, Change[]> {
  const groups = new Map<number, Change[]>();
  for (const row of rows) {
    const group = groups.get(row.revision);
    if (group === undefined) groups.set(row.revision, [row]);
    else group.push(row);
  }
  return groups;
}

function objectOf(rows: readonly Change[]): string {
  let json = "";
  for (const { key, kind, value } of rows) {
    const shown = kind === "put" ? JSON.stringify(value) : kind === "add" ? value : "null";
    json += `${json === "" ? "{" : ","}${JSON.stringify(key)}:${shown}`;
  }
  return `${json}}`;
}
