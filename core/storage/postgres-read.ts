/** Grouped reads of PostgreSQL. Rows come packed into one text (packed.ts), which is cheapest for the driver. */
import { keyBounds } from "./encoding.ts";
import { joinRows, unpack } from "./packed.ts";
import type { PostgresDatabase } from "./postgres-database.ts";
import { TABLE } from "./postgres-schema.ts";
import type { Joined, Range, Row, Tail } from "./store.ts";

const PACKED_SQL = "string_agg(key || chr(31) || revision || chr(31) || value, chr(30))";
/** This keeps a text far below the gigabyte that PostgreSQL allows. */
const MAX_PACKED_ROWS = 10_000;

interface PostgresReader {
  /** The rows that exist, by key. */
  rows(keys: readonly string[]): Promise<Map<string, Row>>;
  /** The rows of each range, in its order. */
  ranges(ranges: readonly Range[]): Promise<Row[][]>;
  /** The results in the order of `tails`. */
  tails(tails: readonly Tail[]): Promise<Joined[]>;
}

type Kind = "ASC" | "DESC" | "large";

const rangeKind = ({ limit, reverse }: Range): Kind => (limit > MAX_PACKED_ROWS ? "large" : reverse ? "DESC" : "ASC");

export function createPostgresReader(database: PostgresDatabase): PostgresReader {
  /** One query for all ranges of one direction. */
  async function scanTogether(direction: "ASC" | "DESC", ranges: readonly Range[]): Promise<Row[][]> {
    if (ranges.length === 0) return [];
    const bounds = ranges.map(keyBounds);
    const { rows } = await database.read({
      name: `penstock-scan-${direction}`,
      text:
        `SELECT (SELECT ${PACKED_SQL} FROM (SELECT key, revision, value FROM ${TABLE} WHERE key >= low AND key < high ` +
        `ORDER BY key ${direction} LIMIT wanted OFFSET skipped) AS found) AS packed ` +
        "FROM unnest($1::text[], $2::text[], $3::int[], $4::int[]) WITH ORDINALITY AS range (low, high, wanted, skipped, n) " +
        "ORDER BY n",
      values: [
        bounds.map(({ low }) => low),
        bounds.map(({ high }) => high),
        ranges.map(({ limit }) => limit),
        ranges.map(({ skip = 0 }) => skip),
      ],
    });
    return rows.map(({ packed }) => unpack(packed as string | null));
  }

  async function scanLarge(range: Range): Promise<Row[]> {
    const { reverse, limit, skip = 0 } = range;
    const { low, high } = keyBounds(range);
    const { rows } = await database.read({
      text:
        `SELECT key, value, revision FROM ${TABLE} WHERE key >= $1 AND key < $2 ` +
        `ORDER BY key ${reverse ? "DESC" : "ASC"} LIMIT $3 OFFSET $4`,
      values: [low, high, limit, skip],
    });
    // The driver gives a bigint as text.
    return rows.map(({ key, value, revision }) => ({
      key: key as string,
      value: value as string,
      revision: Number(revision),
    }));
  }

  /** The caller bounds the limits of all tails together, so that no text comes near a gigabyte. */
  async function tailsTogether(tails: readonly Tail[]): Promise<Joined[]> {
    const bounds = tails.map(keyBounds);
    const { rows } = await database.read({
      name: "penstock-tail",
      text:
        `SELECT found.first, found.text, other.value, other.revision ` +
        "FROM unnest($1::text[], $2::text[], $3::int[], $4::text[]) WITH ORDINALITY AS tail (low, high, wanted, beside, n) " +
        "CROSS JOIN LATERAL (SELECT string_agg(value, ',' ORDER BY key) AS text, " +
        "CASE WHEN count(*) = wanted THEN min(key) END AS first " +
        `FROM (SELECT key, value FROM ${TABLE} WHERE key >= low AND key < high ORDER BY key DESC LIMIT wanted) AS rows) AS found ` +
        `LEFT JOIN ${TABLE} AS other ON other.key = beside ORDER BY n`,
      values: [
        bounds.map(({ low }) => low),
        bounds.map(({ high }) => high),
        tails.map(({ limit }) => limit),
        tails.map(({ otherKey }) => otherKey),
      ],
    });
    return rows.map(({ first, text, value, revision }, index) => ({
      text: (text ?? "") as string,
      first: first as string | null,
      other:
        value === null
          ? undefined
          : { key: tails[index]!.otherKey, value: value as string, revision: Number(revision) },
    }));
  }

  async function largeTail(tail: Tail): Promise<Joined> {
    const [rows, others] = await Promise.all([scanLarge({ ...tail, reverse: true }), reader.rows([tail.otherKey])]);
    return joinRows(rows.reverse(), tail.limit, others.get(tail.otherKey));
  }

  const reader: PostgresReader = {
    async rows(keys) {
      const { rows } = await database.read({
        name: "penstock-get",
        text: `SELECT ${PACKED_SQL} AS packed FROM ${TABLE} WHERE key = ANY($1::text[])`,
        values: [keys],
      });
      return new Map(unpack((rows[0]?.packed ?? null) as string | null).map((row) => [row.key, row]));
    },

    async ranges(ranges) {
      const of = (kind: Kind) => ranges.filter((range) => rangeKind(range) === kind);
      const [up, down, ...rows] = await Promise.all([
        scanTogether("ASC", of("ASC")),
        scanTogether("DESC", of("DESC")),
        ...of("large").map(scanLarge),
      ]);
      const results = { ASC: up.values(), DESC: down.values(), large: rows.values() };
      return ranges.map((range) => results[rangeKind(range)].next().value ?? []);
    },

    async tails(tails) {
      // A tail with a large limit is always alone in its group.
      const [first] = tails;
      if (first !== undefined && first.limit > MAX_PACKED_ROWS) return [await largeTail(first)];
      return tailsTogether(tails);
    },
  };
  return reader;
}
