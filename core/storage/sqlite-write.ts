/** A group of commits as one transaction of SQLite. */

import { prefixEnd } from "./encoding.ts";
import { type Changes, expectedKeys, foldGroup, type Written } from "./group.ts";
import { FIELD, unpack } from "./packed.ts";
import { codeOf, META, type SqliteConnection } from "./sqlite-connection.ts";
import type { Revisions } from "./sqlite-schema.ts";
import type { Commit } from "./store.ts";

const EXPECTED = `SELECT group_concat(key || char(31) || revision || char(31), char(30)) AS packed
  FROM rows WHERE key IN (SELECT value FROM json_each(?))`;

/** An object of key and value, which begins with the revision, counted from ?2, and a separator: cheaper to take apart than JSON. */
const PUT = `INSERT INTO rows (key, value, revision)
  SELECT key, substr(value, instr(value, char(31)) + 1), ?2 + CAST(value AS INTEGER) FROM json_each(?1) WHERE true
  ON CONFLICT (key) DO UPDATE SET revision = excluded.revision, value = excluded.value`;

/** An object of key and number. What is no number is no counter: NULL, which the column refuses. */
const ADD = `INSERT INTO rows (key, value, revision) SELECT key, value, ?2 FROM json_each(?1) WHERE true
  ON CONFLICT (key) DO UPDATE SET revision = excluded.revision,
    value = iif(CAST(CAST(rows.value AS INTEGER) AS TEXT) = CAST(rows.value AS TEXT), rows.value + excluded.value, NULL)`;

const REMOVE = "DELETE FROM rows WHERE key IN (SELECT value FROM json_each(?))";
const CLEAR = "DELETE FROM rows WHERE key >= ? AND key < ?";

export interface SqliteWriter {
  /** One transaction; resolves when it is on disk: with the revision of each commit, or why it did not happen. */
  write(commits: readonly Commit[]): Promise<readonly (number | Error)[]>;
  /** Whether a transaction can be written now; rejects when not. Leaves nothing. */
  probe(): Promise<void>;
}

export function createSqliteWriter(connection: SqliteConnection, revisions: Revisions): SqliteWriter {
  /** Statements of two transactions on one connection would be one transaction. */
  let turn: Promise<unknown> = Promise.resolve();

  function transaction<T>(work: () => Promise<T>): Promise<T> {
    const result = turn.then(() => alone(work));
    turn = result.catch(() => {});
    return result;
  }

  async function alone<T>(work: () => Promise<T>): Promise<T> {
    await connection.query("BEGIN IMMEDIATE");
    try {
      const result = await work();
      await connection.query("COMMIT");
      return result;
    } catch (error) {
      revisions.forget();
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

  async function apply(changes: Changes, base: number): Promise<void> {
    for (const prefix of changes.clear) await connection.query(CLEAR, prefix, prefixEnd(prefix));
    if (changes.delete.length > 0) await connection.query(REMOVE, JSON.stringify(changes.delete));
    if (changes.put.length > 0) await connection.query(PUT, putsOf(changes.put, base), base);
    if (changes.add.length > 0) await connection.query(ADD, addsOf(changes.add), base);
  }

  const together = (commits: readonly Commit[]) =>
    transaction(async () => {
      const stored = await revisionsOf(expectedKeys(commits));
      const base = await revisions.take(commits.length);
      const { changes, results } = foldGroup(commits, stored, base);
      await apply(changes, base);
      return results;
    });

  /** A commit that SQLite refuses for what is in it fails alone, and not with its whole group. */
  async function write(commits: readonly Commit[]): Promise<readonly (number | Error)[]> {
    try {
      return await together(commits);
    } catch (error) {
      if (codeOf(error) !== "SQLITE_CONSTRAINT") throw error;
      if (commits.length === 1) return [new Error("what is added to is no counter", { cause: error })];
    }
    const results: (number | Error)[] = [];
    for (const commit of commits) results.push(...(await write([commit])));
    return results;
  }

  return {
    write,
    probe: () =>
      transaction(async () => {
        // Large enough that a full disk shows.
        await connection.query(`INSERT OR REPLACE INTO ${META} (key, value) VALUES ('probe', hex(zeroblob(16384)))`);
        await connection.query(`DELETE FROM ${META} WHERE key = 'probe'`);
      }),
  };
}

function putsOf(rows: readonly Written[], base: number): string {
  let json = "";
  for (const { key, value, revision } of rows) {
    json += `${json === "" ? "{" : ","}${JSON.stringify(key)}:${JSON.stringify(`${revision - base}${FIELD}${value}`)}`;
  }
  return `${json}}`;
}

const addsOf = (rows: readonly Written[]): string =>
  `{${rows.map(({ key, value }) => `${JSON.stringify(key)}:${value}`).join()}}`;
