/** Grouped reads of SQLite. Rows come packed into one text (packed.ts), which is four times as fast as one object per row. */
import { keyBounds } from "./encoding.ts";
import { PACK_ROW_SQL, unpack } from "./packed.ts";
import { type SqliteConnection, sqliteErrorCode } from "./sqlite-connection.ts";
import type { Range, Row } from "./store.ts";

const PACKED_SQL = `group_concat(${PACK_ROW_SQL}, char(30)) AS packed`;
/** A join, since `IN` would first sort the keys into a temporary table. */
const FROM_KEYS = "FROM (SELECT rows.* FROM json_each(?) AS asked CROSS JOIN rows ON rows.key = asked.value)";

interface SqliteReader {
  /** The rows that exist, by key. */
  rows(keys: readonly string[]): Promise<Map<string, Row>>;
  /** The rows of each range, in its order. */
  ranges(ranges: readonly Range[]): Promise<Row[][]>;
}

interface PlainRow {
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
    (await connection.query<PlainRow>(sql, ...parameters)).map((row) => ({ ...row, value: String(row.value) }));

  async function scanOne(range: Range): Promise<Row[]> {
    const { low, high } = keyBounds(range);
    const select = selectRange(range, "?1", "?2");
    return orPlain(
      () => packed(`SELECT ${PACKED_SQL} FROM (${select})`, low, high),
      () => plain(select, low, high),
    );
  }

  /** One query for ranges that differ only in their bounds. */
  async function scanTogether(ranges: readonly Range[]): Promise<Row[][]> {
    const [first] = ranges;
    if (first === undefined) return [];
    if (ranges.length === 1) return [await scanOne(first)];
    const bounds = ranges.map((range) => {
      const { low, high } = keyBounds(range);
      return [low, high];
    });
    const select = selectRange(first, "bounds.value ->> 0", "bounds.value ->> 1");
    // Every result has its number `n`. Sorting in SQL would copy all packed texts.
    const sql = `SELECT bounds.key AS n, (SELECT ${PACKED_SQL} FROM (${select})) AS packed FROM json_each(?1) AS bounds`;
    return orPlain(
      async () => {
        const results: Row[][] = [];
        const found = await connection.query<{ n: number; packed: string | null }>(sql, JSON.stringify(bounds));
        for (const { n, packed } of found) results[n] = unpack(packed);
        return results;
      },
      async () => {
        const results: Row[][] = [];
        for (const range of ranges) results.push(await scanOne(range));
        return results;
      },
    );
  }

  return {
    async rows(keys) {
      const list = JSON.stringify(keys);
      const found = await orPlain(
        () => packed(`SELECT ${PACKED_SQL} ${FROM_KEYS}`, list),
        () => plain(`SELECT key, revision, value ${FROM_KEYS}`, list),
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
        const rows = await scanTogether(indexes.map((index) => ranges[index] as Range));
        indexes.forEach((index, at) => {
          results[index] = rows[at] ?? [];
        });
      }
      return results;
    },
  };
}

/** A text of SQLite can hold a gigabyte at most: larger results are read row by row. */
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
