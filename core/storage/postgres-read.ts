/** Grouped reads of PostgreSQL. Rows come packed into one text (packed.ts), which is cheapest for the driver. */
import { fairShare, type RowQueries } from "./bounded-reader.ts";
import { keyBounds } from "./encoding.ts";
import { POSTGRES, packRowSql, textLimit, unpack } from "./packed.ts";
import type { PostgresDatabase } from "./postgres-database.ts";
import type { Joined, Range, Row, Tail } from "./store.ts";

/** @param longest a parameter of the query */
const packedSql = (longest: string) => `string_agg(${packRowSql(POSTGRES, longest)}, chr(30))`;

interface PostgresReader extends RowQueries {
  /** The results in the order of `tails`; null for one with a value that is too long. Together they are at most 32 MiB. */
  tails(tails: readonly Tail[]): Promise<(Joined | null)[]>;
}

type Direction = "ASC" | "DESC";

const directionOf = ({ reverse }: Range): Direction => (reverse ? "DESC" : "ASC");

export function createPostgresReader(database: PostgresDatabase): PostgresReader {
  const TABLE = database.names.table;

  /** One query for all ranges of one direction. */
  async function scanTogether(direction: Direction, ranges: readonly Range[], longest: number): Promise<Row[][]> {
    if (ranges.length === 0) return [];
    const bounds = ranges.map(keyBounds);
    const { rows } = await database.read({
      name: `penstock-scan-${direction}`,
      text:
        `SELECT (SELECT ${packedSql("$5::int")} FROM (SELECT key, revision, value FROM ${TABLE} WHERE key >= low AND key < high ` +
        `ORDER BY key ${direction} LIMIT wanted OFFSET skipped) AS found) AS packed ` +
        "FROM unnest($1::text[], $2::text[], $3::int[], $4::int[]) WITH ORDINALITY AS range (low, high, wanted, skipped, n) " +
        "ORDER BY n",
      values: [
        bounds.map(({ low }) => low),
        bounds.map(({ high }) => high),
        ranges.map(({ limit }) => limit),
        ranges.map(({ skip = 0 }) => skip),
        longest,
      ],
    });
    return rows.map(({ packed }) => unpack(packed as string | null));
  }

  /** @param rows of all tails that are read at the moment, which share what a query may give */
  async function tailsTogether(tails: readonly Tail[], rows: number): Promise<(Joined | null)[]> {
    const bounds = tails.map(keyBounds);
    const found = await database.read({
      name: "penstock-tail",
      text:
        `SELECT found.first, found.text, found.longest <= most AS fits, other.value, other.revision ` +
        "FROM unnest($1::text[], $2::text[], $3::int[], $4::text[], $5::int[]) " +
        "WITH ORDINALITY AS tail (low, high, wanted, beside, most, n) " +
        "CROSS JOIN LATERAL (SELECT string_agg(value, ',' ORDER BY key) FILTER (WHERE octet_length(value) <= most) AS text, " +
        "max(octet_length(value)) AS longest, CASE WHEN count(*) = wanted THEN min(key) END AS first " +
        `FROM (SELECT key, value FROM ${TABLE} WHERE key >= low AND key < high ORDER BY key DESC LIMIT wanted) AS rows) AS found ` +
        `LEFT JOIN ${TABLE} AS other ON other.key = beside ORDER BY n`,
      values: [
        bounds.map(({ low }) => low),
        bounds.map(({ high }) => high),
        tails.map(({ limit }) => limit),
        tails.map(({ otherKey }) => otherKey),
        tails.map(({ limit, most }) => Math.min(fairShare(rows), Math.floor(textLimit(most) / limit))),
      ],
    });
    return found.rows.map(({ first, text, fits, value, revision }, index) => {
      if (fits === false) return null;
      const { otherKey } = tails[index] as Tail;
      // The driver gives a bigint as text.
      const other = { key: otherKey, value: value as string, revision: Number(revision) };
      return { text: (text ?? "") as string, first: first as string | null, other: value === null ? undefined : other };
    });
  }

  return {
    async rows(keys, longest) {
      const { rows } = await database.read({
        name: "penstock-get",
        text: `SELECT ${packedSql("$2::int")} AS packed FROM ${TABLE} WHERE key = ANY($1::text[])`,
        values: [keys, longest],
      });
      return new Map(unpack((rows[0]?.packed ?? null) as string | null).map((row) => [row.key, row]));
    },

    async ranges(ranges, longest) {
      const of = (direction: Direction) => ranges.filter((range) => directionOf(range) === direction);
      const [up, down] = await Promise.all([
        scanTogether("ASC", of("ASC"), longest),
        scanTogether("DESC", of("DESC"), longest),
      ]);
      const results = { ASC: up.values(), DESC: down.values() };
      return ranges.map((range) => results[directionOf(range)].next().value ?? []);
    },

    async tails(tails) {
      const rows = tails.reduce((sum, { limit }) => sum + limit, 0);
      const results = await tailsTogether(tails, rows);
      for (const [index, tail] of tails.entries()) {
        // Alone it may have longer values.
        if (results[index] === null && rows > tail.limit)
          results[index] = (await tailsTogether([tail], tail.limit))[0] ?? null;
      }
      return results;
    },
  };
}
