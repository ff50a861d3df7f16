/** Reads of SQLite, many at a time. Rows come as one text (packed.ts): four times as fast as an object for each. */
import { boundsOf } from "./encoding.ts";
import { PACK, unpack } from "./packed.ts";
import { codeOf, type SqliteConnection } from "./sqlite-connection.ts";
import type { Range, Row } from "./store.ts";

const PACKED = `group_concat(${PACK}, char(30)) AS packed`;
const OF_KEYS = "FROM rows WHERE key IN (SELECT value FROM json_each(?))";

export interface SqliteReader {
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
  const packed = async (sql: string, ...parameters: unknown[]): Promise<Row[][]> =>
    (await connection.query<{ packed: string | null }>(sql, ...parameters)).map((row) => unpack(row.packed));

  const plain = async (sql: string, ...parameters: unknown[]): Promise<Row[]> =>
    (await connection.query<Plain>(sql, ...parameters)).map((row) => ({ ...row, value: String(row.value) }));

  async function one(range: Range): Promise<Row[]> {
    const { low, high } = boundsOf(range);
    const select = selectRange(range, "?1", "?2");
    return orPlain(
      async () => (await packed(`SELECT ${PACKED} FROM (${select})`, low, high))[0] ?? [],
      () => plain(select, low, high),
    );
  }

  /** Ranges that differ in their bounds alone are one query. */
  async function alike(ranges: readonly Range[]): Promise<Row[][]> {
    const [first] = ranges;
    if (first === undefined) return [];
    if (ranges.length === 1) return [await one(first)];
    const bounds = ranges.map((range) => {
      const { low, high } = boundsOf(range);
      return [low, high];
    });
    const select = selectRange(first, "bounds.value ->> 0", "bounds.value ->> 1");
    const sql = `SELECT (SELECT ${PACKED} FROM (${select})) AS packed FROM json_each(?1) AS bounds ORDER BY bounds.key`;
    return orPlain(
      () => packed(sql, JSON.stringify(bounds)),
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
        async () => (await packed(`SELECT ${PACKED} ${OF_KEYS}`, list))[0] ?? [],
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
    if (codeOf(error) !== "SQLITE_TOOBIG") throw error;
    return plain();
  }
}

const selectRange = ({ reverse, limit, skip = 0 }: Range, low: string, high: string): string =>
  `SELECT key, revision, value FROM rows WHERE key >= ${low} AND key < ${high} ORDER BY key ${reverse ? "DESC" : "ASC"} LIMIT ${limit} OFFSET ${skip}`;
