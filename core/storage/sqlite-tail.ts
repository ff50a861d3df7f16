/** Reads tails from SQLite: the last values of a range, joined into one text. */
import { keyBounds } from "./encoding.ts";
import { type SqliteConnection, sqliteErrorCode } from "./sqlite-connection.ts";
import type { Joined, Tail } from "./store.ts";

/** From this many values on the text comes as bytes, which garbage collection does not copy. For few values a string is cheaper. */
const MIN_VALUES_AS_BYTES = 32;

interface Found {
  n: number;
  first: string | null;
  value: string | number | null;
  revision: number;
  text: string | Uint8Array | null;
}

/** The results in the order of `tails`; null for one that is larger than a value of SQLite can be. */
export async function readTails(connection: SqliteConnection, tails: readonly Tail[]): Promise<(Joined | null)[]> {
  const limits = new Map<number, number[]>();
  tails.forEach(({ limit }, index) => {
    const known = limits.get(limit);
    if (known === undefined) limits.set(limit, [index]);
    else known.push(index);
  });
  const results: (Joined | null)[] = [];
  for (const [limit, indexes] of limits) {
    const found = await readTogether(
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

async function readTogether(
  connection: SqliteConnection,
  limit: number,
  tails: readonly Tail[],
): Promise<(Joined | null)[]> {
  const asked = tails.map((tail) => {
    const { low, high } = keyBounds(tail);
    return [low, high, tail.otherKey];
  });
  try {
    const results: Joined[] = [];
    for (const { n, first, text, value, revision } of await connection.query<Found>(
      tailSql(limit),
      JSON.stringify(asked),
    )) {
      const other = value === null ? undefined : { key: tails[n]!.otherKey, value: String(value), revision };
      results[n] = { text: text ?? "", first, other };
    }
    return results;
  } catch (error) {
    if (sqliteErrorCode(error) !== "SQLITE_TOOBIG") throw error;
    if (tails.length === 1) return [null];
    const results: (Joined | null)[] = [];
    for (const tail of tails) results.push(...(await readTogether(connection, limit, [tail])));
    return results;
  }
}

/**
 * Finds the first key of the tail, then reads upwards: going over the keys twice is cheaper than reversing the text.
 * `MATERIALIZED` makes SQLite look for the first key only once.
 */
function tailSql(limit: number): string {
  const text = "group_concat(value, ',')";
  return `WITH asked AS MATERIALIZED (
      SELECT key AS n, value ->> 0 AS low, value ->> 1 AS high, value ->> 2 AS beside FROM json_each(?1)
    ), begun AS MATERIALIZED (
      SELECT n, low, high, beside,
        (SELECT key FROM rows WHERE key >= low AND key < high ORDER BY key DESC LIMIT 1 OFFSET ${limit - 1}) AS first
      FROM asked
    )
    SELECT n, first, rows.value, rows.revision,
      (SELECT ${limit < MIN_VALUES_AS_BYTES ? text : `CAST(${text} AS BLOB)`} FROM rows WHERE key >= ifnull(first, low) AND key < high) AS text
    FROM begun LEFT JOIN rows ON rows.key = beside`;
}
