/** Reads of SQLite, many at a time. Rows come as one text (packed.ts): four times as fast as an object for each. */
import { keyBounds } from "./encoding.ts";
import { PACK_ROW_SQL, unpack } from "./packed.ts";
import { type SqliteConnection, sqliteErrorCode } from "./sqlite-connection.ts";
import type { Range, Row } from "./store.ts";

const PACKED = `group_concat(${PACK_ROW_SQL}, char(30)) AS packed`;
/** Looked up one after the other: `IN` would sort the keys into a table of its own first. */
const OF_KEYS = "FROM (SELECT rows.* FROM json_each(?) AS asked CROSS JOIN rows ON rows.key = asked.value)";

interface SqliteReader {
  /** Those that exist, by key. */
  rows(keys: readonly string[]): Promise<Map<string, Row>>;
  /** The rows of each range, in its order. */
  ranges(ranges: readonly Range[]): Promise<Row[][]>;
}

interface Plain {
  key: string;
  revision: number;
  value: string | number;
}

export function createSqliteReader(connection: SqliteConnection): SqliteReader {
  const packed = async (sql: string, ...parameters: unknown[]): Promise<Row[]> => {
    const [row] = await connection.query<{ packed: string | null }>(sql, ...parameters);
    return unpack(row?.packed ?? null);
  };

  const plain = async (sql: string, ...parameters: unknown[]): Promise<Row[]> =>
    (await connection.query<Plain>(sql, ...parameters)).map((row) => ({ ...row, value: String(row.value) }));

  async function one(range: Range): Promise<Row[]> {
    const { low, high } = keyBounds(range);
    const select = selectRange(range, "?1", "?2");
    return orPlain(
      () => packed(`SELECT ${PACKED} FROM (${select})`, low, high),
      () => plain(select, low, high),
    );
  }

  /** Ranges that differ in their bounds alone are one query. */
  async function alike(ranges: readonly Range[]): Promise<Row[][]> {
    const [first] = ranges;
    if (first === undefined) return [];
    if (ranges.length === 1) return [await one(first)];
    const bounds = ranges.map((range) => {
      const { low, high } = keyBounds(range);
      return [low, high];
    });
    const select = selectRange(first, "bounds.value ->> 0", "bounds.value ->> 1");
    // Each says which it is: to sort them would copy all that was packed.
    const sql = `SELECT bounds.key AS n, (SELECT ${PACKED} FROM (${select})) AS packed FROM json_each(?1) AS bounds`;
    return orPlain(
      async () => {
        const results: Row[][] = [];
        const found = await connection.query<{ n: number; packed: string | null }>(sql, JSON.stringify(bounds));
        for (const { n, packed } of found) results[n] = unpack(packed);
        return results;
      },
      async () => {
        const results: Row[][] = [];
        for (const range of ranges) results.push(await one(range));
        return results;
      },
    );
  }

  return {
    async rows(keys) {
      const list = JSON.stringify(keys);
      const found = await orPlain(
        () => packed(`SELECT ${PACKED} ${OF_KEYS}`, list),
        () => plain(`SELECT key, revision, value ${OF_KEYS}`, list),
      );
      return new Map(found.map((row) => [row.key, row]));
    },

    async ranges(ranges) {
      const kinds = new Map<string, number[]>();
      ranges.forEach(({ reverse, limit, skip }, index) => {
        const kind = `${reverse === true} ${limit} ${skip ?? 0}`;
        const known = kinds.get(kind);
        if (known === undefined) kinds.set(kind, [index]);
        else known.push(index);
      });
      const results: Row[][] = [];
      for (const indexes of kinds.values()) {
        const rows = await alike(indexes.map((index) => ranges[index] as Range));
        indexes.forEach((index, at) => {
          results[index] = rows[at] ?? [];
        });
      }
      return results;
    },
  };
}

/** One text of SQLite holds a gigabyte at most: what is more comes row by row. */
async function orPlain<T>(packed: () => Promise<T>, plain: () => Promise<T>): Promise<T> {
  try {
    return await packed();
  } catch (error) {
    if (sqliteErrorCode(error) !== "SQLITE_TOOBIG") throw error;
    return plain();
  }
}

const selectRange = ({ reverse, limit, skip = 0 }: Range, low: string, high: string): string =>
  `SELECT key, revision, value FROM rows WHERE key >= ${low} AND key < ${high} ORDER BY key ${reverse ? "DESC" : "ASC"} LIMIT ${limit} OFFSET ${skip}`;
