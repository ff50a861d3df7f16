/** Reads tails from SQLite: the last values of a range, joined into one text. */
import { fairShare } from "./bounded-reader.ts";
import { keyBounds } from "./encoding.ts";
import { textLimit } from "./packed.ts";
import type { SqliteConnection } from "./sqlite-connection.ts";
import { SQLITE } from "./sqlite-schema.ts";
import type { Joined, Tail } from "./store.ts";

/** From this many values on the text comes as bytes, which garbage collection does not copy. For few values a string is cheaper. */
const MIN_VALUES_AS_BYTES = 32;

interface Found {
  n: number;
  first: string | null;
  value: string | number | null;
  revision: number;
  /** 0: a value is too long. */
  text: string | Uint8Array | 0 | null;
}

/** The results in the order of `tails`; null for one with a value that is too long. Together they are at most 32 MiB. */
export async function readTails(connection: SqliteConnection, tails: readonly Tail[]): Promise<(Joined | null)[]> {
  const kinds = new Map<string, number[]>();
  tails.forEach(({ limit, most }, index) => {
    const kind = `${limit} ${textLimit(most)}`;
    const known = kinds.get(kind);
    if (known === undefined) kinds.set(kind, [index]);
    else known.push(index);
  });
  const rows = tails.reduce((sum, { limit }) => sum + limit, 0);
  const results: (Joined | null)[] = [];
  for (const indexes of kinds.values()) {
    const group = indexes.map((index) => tails[index] as Tail);
    const found = await readTogether(connection, group, rows);
    for (const [at, index] of indexes.entries()) {
      const tail = tails[index] as Tail;
      // Alone it may have longer values.
      const alone = found[at] === null && rows > tail.limit;
      results[index] = (alone ? (await readTogether(connection, [tail], tail.limit))[0] : found[at]) ?? null;
    }
  }
  return results;
}

/** @param rows of all tails that are read at the moment, which share what a query may give */
async function readTogether(
  connection: SqliteConnection,
  tails: readonly Tail[],
  rows: number,
): Promise<(Joined | null)[]> {
  const { limit, most } = tails[0] as Tail;
  const longest = Math.min(fairShare(rows), Math.floor(textLimit(most) / limit));
  const asked = tails.map((tail) => {
    const { low, high } = keyBounds(tail);
    return [low, high, tail.otherKey];
  });
  const results: (Joined | null)[] = [];
  const found = await connection.query<Found>(tailSql(limit, longest), JSON.stringify(asked));
  for (const { n, first, text, value, revision } of found) {
    const other = value === null ? undefined : { key: tails[n]!.otherKey, value: String(value), revision };
    results[n] = text === 0 ? null : { text: text ?? "", first, other };
  }
  return results;
}

/**
 * Finds the first key of the tail, then reads upwards: going over the keys twice is cheaper than reversing the text.
 * `MATERIALIZED` makes SQLite look for the first key only once. Large values that are too long are left out of the text, which then is not used.
 */
function tailSql(limit: number, longest: number): string {
  const { size, whole } = SQLITE;
  const joined = `group_concat(iif(size > ${longest}, NULL, ${whole}), ',')`;
  const text = limit < MIN_VALUES_AS_BYTES ? joined : `CAST(${joined} AS BLOB)`;
  return `WITH asked AS MATERIALIZED (
      SELECT key AS n, value ->> 0 AS low, value ->> 1 AS high, value ->> 2 AS beside FROM json_each(?1)
    ), begun AS MATERIALIZED (
      SELECT n, low, high, beside,
        (SELECT key FROM rows WHERE key >= low AND key < high ORDER BY key DESC LIMIT 1 OFFSET ${limit - 1}) AS first
      FROM asked
    )
    SELECT n, first, ${whole} AS value, rows.revision,
      (SELECT CASE WHEN max(${size}) > ${longest} THEN 0 ELSE ${text} END FROM rows WHERE key >= ifnull(first, low) AND key < high) AS text
    FROM begun LEFT JOIN rows ON rows.key = beside`;
}
