/** Tails of SQLite: the last values of a range as one text, which nobody takes apart. */
import { keyBounds } from "./encoding.ts";
import { type SqliteConnection, sqliteErrorCode } from "./sqlite-connection.ts";
import type { Joined, Tail } from "./store.ts";

/** From so many values on they come as bytes, which garbage collection does not copy around; few are cheaper as a string. */
const BYTES = 32;

interface Found {
  n: number;
  first: string | null;
  value: string | number | null;
  revision: number;
  text: string | Uint8Array | null;
}

/** The results in the order of `tails`; null for one that is more than a value of SQLite can hold. */
export async function readTails(connection: SqliteConnection, tails: readonly Tail[]): Promise<(Joined | null)[]> {
  const limits = new Map<number, number[]>();
  tails.forEach(({ limit }, index) => {
    const known = limits.get(limit);
    if (known === undefined) limits.set(limit, [index]);
    else known.push(index);
  });
  const results: (Joined | null)[] = [];
  for (const [limit, indexes] of limits) {
    const found = await alike(
      connection,
      limit,
      indexes.map((index) => tails[index] as Tail),
    );
    indexes.forEach((index, at) => {
      results[index] = found[at] ?? null;
    });
  }
  return results;
}

async function alike(connection: SqliteConnection, limit: number, tails: readonly Tail[]): Promise<(Joined | null)[]> {
  const asked = tails.map((tail) => {
    const { low, high } = keyBounds(tail);
    return [low, high, tail.beside];
  });
  try {
    const results: Joined[] = [];
    for (const { n, first, text, value, revision } of await connection.query<Found>(
      sqlOf(limit),
      JSON.stringify(asked),
    )) {
      const beside = value === null ? undefined : { key: tails[n]!.beside, value: String(value), revision };
      results[n] = { text: text ?? "", first, beside };
    }
    return results;
  } catch (error) {
    if (sqliteErrorCode(error) !== "SQLITE_TOOBIG") throw error;
    if (tails.length === 1) return [null];
    const results: (Joined | null)[] = [];
    for (const tail of tails) results.push(...(await alike(connection, limit, [tail])));
    return results;
  }
}

/**
 * Finds where the tail begins, then walks upwards: the keys are walked over twice, which costs less than turning the text around.
 * `MATERIALIZED` so that the beginning is looked for once.
 */
function sqlOf(limit: number): string {
  const text = "group_concat(value, ',')";
  return `WITH asked AS MATERIALIZED (
      SELECT key AS n, value ->> 0 AS low, value ->> 1 AS high, value ->> 2 AS beside FROM json_each(?1)
    ), begun AS MATERIALIZED (
      SELECT n, low, high, beside,
        (SELECT key FROM rows WHERE key >= low AND key < high ORDER BY key DESC LIMIT 1 OFFSET ${limit - 1}) AS first
      FROM asked
    )
    SELECT n, first, rows.value, rows.revision,
      (SELECT ${limit < BYTES ? text : `CAST(${text} AS BLOB)`} FROM rows WHERE key >= ifnull(first, low) AND key < high) AS text
    FROM begun LEFT JOIN rows ON rows.key = beside`;
}
