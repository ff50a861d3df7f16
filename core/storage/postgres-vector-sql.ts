/**
 * The SQL of the tables in which pgvector compares vectors. The rows of the store are the only truth, and all of this can be made again
 * from them:
 *
 * - A table of notes has the key and the revision of every row with a vector, whoever writes it, for a trigger keeps it in the
 *   transaction of the row. A note without dimensions says that the vector is not in its table yet.
 * - For each number of dimensions there is a table of vectors. They are brought there in the background, so that no commit waits for
 *   it. When a row goes, its note goes, and with the note its vector.
 * - Vectors are compared one by one, which is fast and exact, unless a search meets very many. Those it searches are then `large`: they
 *   are in the index, which costs the server some milliseconds a vector.
 *
 * Numbers have 16 bits: half the size, and the index takes twice as many dimensions. Vectors have length 1, so that the nearest are the most
 * similar; of vectors that are nearly the same, their distance is far more exact in 16 bits than their product. The trigger names nothing of pgvector, so that
 * commits go on when the extension is dropped.
 */
import { type VectorNames, WALKED } from "./postgres-vector-names.ts";

/** What pgvector takes of its type `halfvec`, in a table and in an index. */
export const MOST_DIMENSIONS = 16_000;
export const MOST_INDEXED_DIMENSIONS = 4_000;
export const LARGEST_NUMBER = 65_504;

const ROWS_PER_WALK = 1_000;
const ROWS_PER_FILL = 64;
/** Takes the server about a tenth of a second, for which somebody waits who deletes one of them. */
const ROWS_PER_INDEXING = 20;

const inRange = "key >= $1 AND key < $2";

/** The notes, and the trigger that keeps them. */
export const createNotes = (names: VectorNames, prefix: string): string[] => {
  const { notes, note, trigger, table, meta, walk, tablePrefix } = names;
  const concerns = (row: string) => `(starts_with(${row}.key, '${prefix}') AND ${row}.revision > 0)`;
  return [
    `CREATE TABLE IF NOT EXISTS ${notes} (key text COLLATE "C" PRIMARY KEY, revision bigint NOT NULL, dimensions int)`,
    `CREATE INDEX ON ${notes} (key) WHERE dimensions IS NULL`,
    // With the rights of the owner: whoever may write rows need not know of the notes.
    `CREATE OR REPLACE FUNCTION ${note}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
     AS $penstock$
     BEGIN
       IF TG_OP = 'DELETE' THEN
         DELETE FROM ${notes} WHERE key = OLD.key;
       ELSE
         INSERT INTO ${notes} (key, revision) VALUES (NEW.key, NEW.revision)
           ON CONFLICT (key) DO UPDATE SET revision = excluded.revision, dimensions = NULL;
       END IF;
       RETURN NULL;
     END $penstock$`,
    // A table of somebody else must not get it as its trigger.
    `REVOKE ALL ON FUNCTION ${note}() FROM PUBLIC`,
    `DROP TRIGGER IF EXISTS ${trigger}_written ON ${table}`,
    `DROP TRIGGER IF EXISTS ${trigger}_deleted ON ${table}`,
    `CREATE TRIGGER ${trigger}_written AFTER INSERT OR UPDATE ON ${table}
       FOR EACH ROW WHEN ${concerns("NEW")} EXECUTE FUNCTION ${note}()`,
    `CREATE TRIGGER ${trigger}_deleted AFTER DELETE ON ${table}
       FOR EACH ROW WHEN ${concerns("OLD")} EXECUTE FUNCTION ${note}()`,
    `DELETE FROM ${meta} WHERE starts_with(key, '${tablePrefix}')`,
    `INSERT INTO ${meta} VALUES ('${walk}', '') ON CONFLICT (key) DO UPDATE SET value = ''`,
  ];
};

/**
 * The table of vectors with so many dimensions. It is empty when it gets its index, so that nobody waits.
 *
 * @param extension the schema in which pgvector is
 */
export function createVectorTable(
  { notes, tableOf, tablePrefix, meta }: VectorNames,
  extension: string,
  dimensions: number,
): string[] {
  const table = tableOf(dimensions);
  const name = `${tablePrefix}${dimensions}`;
  const index =
    dimensions > MOST_INDEXED_DIMENSIONS
      ? []
      : [
          `CREATE INDEX IF NOT EXISTS ${name}_nearest ON ${table} USING hnsw (embedding ${extension}.halfvec_l2_ops) WHERE large`,
        ];
  return [
    // A vector stays beside its key as long as both fit into a page: elsewhere it would be three times as slow to read.
    `CREATE TABLE IF NOT EXISTS ${table} (key text COLLATE "C" PRIMARY KEY REFERENCES ${notes} ON DELETE CASCADE,
       embedding ${extension}.halfvec(${dimensions}) NOT NULL, large boolean NOT NULL DEFAULT false) WITH (toast_tuple_target = 8160)`,
    `CREATE INDEX IF NOT EXISTS ${name}_small ON ${table} (key) WHERE NOT large`,
    `CREATE INDEX IF NOT EXISTS ${name}_large ON ${table} (key) WHERE large`,
    ...index,
    // The notes say what is in the table: it must not be missing later, as when it was not restored.
    `INSERT INTO ${meta} VALUES ('${name}', '') ON CONFLICT DO NOTHING`,
  ];
}

/**
 * Notes the next rows that had been there before the trigger. One that is deleted meanwhile may leave a note, which `removeOrphans` removes.
 * Gives the position, and nothing when another process is at it, or when it is through.
 */
export const walkOn = ({ notes, table, meta, walk }: VectorNames, prefix: string) =>
  `WITH position AS (SELECT value COLLATE "C" AS value FROM ${meta} WHERE key = '${walk}' AND value <> '${WALKED}'
       FOR UPDATE SKIP LOCKED),
     found AS MATERIALIZED (SELECT stored.key, stored.revision FROM ${table} AS stored WHERE stored.key > (SELECT value FROM position)
       AND stored.key >= '${prefix}' AND stored.key < '${prefix}' || chr(127) AND stored.revision > 0
       ORDER BY stored.key LIMIT ${ROWS_PER_WALK}),
     noted AS (INSERT INTO ${notes} (key, revision) SELECT key, revision FROM found ON CONFLICT DO NOTHING)
   UPDATE ${meta} SET value = CASE WHEN (SELECT count(*) FROM found) < ${ROWS_PER_WALK} THEN '${WALKED}' ELSE (SELECT max(key) FROM found) END
     WHERE key = '${walk}' AND EXISTS (SELECT FROM position) RETURNING value`;

/** Some rows whose vectors are not in their tables. `value` is null where the row is gone, or is not the one that was noted. */
export const unfilledRows = ({ notes, table }: VectorNames) =>
  `SELECT note.key, note.revision, stored.key IS NULL AS gone, CASE WHEN stored.revision = note.revision THEN stored.value END AS value
     FROM (SELECT key, revision FROM ${notes} WHERE dimensions IS NULL ORDER BY key LIMIT ${ROWS_PER_FILL}) AS note
     LEFT JOIN ${table} AS stored ON stored.key = note.key`;

/**
 * Each of the following leaves notes alone that have another revision by now: the row was written again. What is locked is left to those
 * who lock it, so that nobody waits in a circle.
 */
const sameNotes = (notes: string, sent: string) =>
  `SELECT note.key FROM ${notes} AS note JOIN ${sent} ON sent.key = note.key
     WHERE note.revision = sent.revision AND note.dimensions IS NULL FOR UPDATE OF note SKIP LOCKED`;
const SENT = "unnest($1::text[], $2::bigint[]) AS sent (key, revision)";

/**
 * The same of notes whose row stays until the vector is in its table. A note that `walkOn` has made may be of a row that another
 * transaction has deleted already and not committed: its trigger has run, and would remove neither the note nor the vector.
 */
const sameRows = ({ notes, table }: VectorNames, sent: string) =>
  `SELECT note.key FROM ${notes} AS note JOIN ${sent} ON sent.key = note.key JOIN ${table} AS stored ON stored.key = note.key
     WHERE note.revision = sent.revision AND note.dimensions IS NULL FOR UPDATE OF note SKIP LOCKED FOR KEY SHARE OF stored SKIP LOCKED`;

/** @param count of vectors, each of them a key, the revision of its note, and the vector in the binary form of pgvector */
export const fillTable = (names: VectorNames, extension: string, dimensions: number, count: number) => {
  const { notes, tableOf } = names;
  const rows = Array.from({ length: count }, (_, row) => {
    return `($${3 * row + 1}::text, $${3 * row + 2}::bigint, $${3 * row + 3}::${extension}.vector)`;
  });
  return `WITH sent (key, revision, embedding) AS (VALUES ${rows.join()}),
     same AS (${sameRows(names, "sent")}),
     filled AS (INSERT INTO ${tableOf(dimensions)} (key, embedding) SELECT key, embedding FROM sent WHERE key IN (SELECT key FROM same)
       ON CONFLICT (key) DO UPDATE SET embedding = excluded.embedding, large = false)
   UPDATE ${notes} SET dimensions = ${dimensions} WHERE key IN (SELECT key FROM same)`;
};

/** For what pgvector does not take. */
export const fillNothing = (names: VectorNames) =>
  `WITH same AS (${sameRows(names, SENT)}) UPDATE ${names.notes} SET dimensions = 0 WHERE key IN (SELECT key FROM same)`;

/** Notes without a row. One that is written at this moment changes the revision of its note. */
export const removeOrphans = ({ notes, table }: VectorNames) =>
  `WITH same AS (${sameNotes(notes, SENT)}) DELETE FROM ${notes} AS note WHERE key IN (SELECT key FROM same)
     AND NOT EXISTS (SELECT FROM ${table} AS stored WHERE stored.key = note.key)`;

/** Takes some more vectors of a range into the index. One process at a time: it costs the server much. */
export const indexRows = ({ tableOf, schema }: VectorNames, dimensions: number) =>
  `UPDATE ${tableOf(dimensions)} SET large = true WHERE (SELECT pg_try_advisory_xact_lock(736378, hashtext('penstock ${schema}')))
     AND key IN (SELECT key FROM ${tableOf(dimensions)}
       WHERE ${inRange} AND NOT large ORDER BY key LIMIT ${ROWS_PER_INDEXING} FOR UPDATE SKIP LOCKED)`;

/**
 * What there is in a range: keys that are not in their table yet, at most $3, and how many of each kind are, at most $4.
 *
 * @param dimensions null where there is no such table
 */
export function lookAtRange({ notes, meta, walk, tableOf }: VectorNames, dimensions: number | null): string {
  const count = (which: string) =>
    dimensions === null
      ? "0"
      : `(SELECT count(*) FROM (SELECT FROM ${tableOf(dimensions)} WHERE ${inRange} AND ${which} LIMIT $4) AS counted)`;
  return `SELECT (SELECT value FROM ${meta} WHERE key = '${walk}') AS walk,
     (SELECT string_agg(key, ' ') FROM (SELECT key FROM ${notes} WHERE ${inRange} AND dimensions IS NULL LIMIT $3) AS found) AS unfilled,
     ${count("large")} AS large, ${count("NOT large")} AS small, $4::int AS most`;
}

/** The nearest $4 of a range to $3; by the index, the nearest $4 of those in it, and of the others. */
export function nearestKeys({ tableOf }: VectorNames, extension: string, dimensions: number, how: "exact" | "indexed") {
  const distance = `embedding OPERATOR(${extension}.<->) $3::${extension}.vector::${extension}.halfvec(${dimensions})`;
  // The sum keeps the planner from using the index.
  const nearest = (which: string, order: string) =>
    `(SELECT key, large FROM ${tableOf(dimensions)} WHERE ${inRange} ${which} ORDER BY ${order} LIMIT $4)`;
  const one = `(${distance}) + 0`;
  return how === "exact"
    ? nearest("", one)
    : `${nearest("AND large", distance)} UNION ALL ${nearest("AND NOT large", one)}`;
}

/** For `nearestKeys` by the index: where others are nearer, it goes on until it has enough of this range, or has seen too many. */
export const searchSettings = (candidates: number) => [
  "SET LOCAL enable_sort = off",
  "SET LOCAL hnsw.iterative_scan = relaxed_order",
  `SET LOCAL hnsw.ef_search = ${candidates}`,
];
