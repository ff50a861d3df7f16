/**
 * The SQL of a commit under READ COMMITTED: as a function of the database, which is one statement and one round trip, and as the same
 * statements one by one, where the function may not be made.
 *
 * Why this is as strict as SERIALIZABLE. A transaction locks every row that it expects, writes or deletes before it knows whether its
 * expectations hold, and until it ends. Where a row is absent it inserts one, which is a lock too: whoever inserts the same key waits
 * for its end. So two transactions that have a key in common come one after the other (strict two-phase locking). What is
 * left are ranges: only `clear` works on keys that it does not name, and it excludes every other transaction by an advisory lock.
 *
 * Why there is no deadlock. A transaction waits first for the advisory lock, then for its own lane, which nobody holds who waits, and
 * then for rows, in the order of their keys, all in one statement. Who waits for a row holds only smaller keys, so a circle would
 * need a key that is smaller than itself. The statements behind that one touch rows that are locked already.
 *
 * A row is sent with the revision that it gets. Zero: it is only locked, because it is deleted, or expected and left as it is. Negative:
 * it gets the revision without the sign, and must be there, so that an insertion shows itself by the sign.
 */
import { LAYOUT_VERSION } from "./layout.ts";
import { OTHER_SERVER, ROWS_CHANGED } from "./postgres-errors.ts";
import type { PostgresNames } from "./postgres-names.ts";

/** What a commit is made of, as names of variables or parameters. Lists are one text, which is cheapest for the driver. */
export interface CommitArguments {
  readonly keys: string;
  readonly texts: string;
  readonly revisions: string;
  /** JSON object: key -> revision, null where the row must be absent. */
  readonly expected: string;
  /** JSON object whose keys are the counters. */
  readonly added: string;
  readonly removed: string;
  /** Expected, and left as they are. */
  readonly kept: string;
}

export const LIST_SEPARATOR = "\x1f";

const list = (text: string, type = "") => `string_to_array(${text}, chr(${LIST_SEPARATOR.charCodeAt(0)}))${type}`;

/** Rows that are not as expected, as JSON of the same form. It takes no locks: it spares transactions that could only fail. */
export const wrongRows = ({ table }: PostgresNames, { expected }: Pick<CommitArguments, "expected">, into = "") =>
  `SELECT jsonb_object_agg(wanted.key, stored.revision)::text AS wrong ${into}
     FROM jsonb_each_text(${expected}) AS wanted LEFT JOIN ${table} AS stored ON stored.key = wanted.key
     WHERE stored.revision IS DISTINCT FROM wanted.value::bigint`;

/** Locks all rows, writes those that are put or added to, and counts those of them that were as expected. */
export const writeRows = (
  { table }: PostgresNames,
  { keys, texts, revisions, expected, added }: Omit<CommitArguments, "removed" | "kept">,
  into = "",
) =>
  `WITH written AS (
     INSERT INTO ${table} AS stored (key, value, revision)
       SELECT key, coalesce(value, ''), revision
         FROM unnest(${list(keys)}, ${list(texts)}, ${list(revisions, "::bigint[]")}) AS sent (key, value, revision)
         ORDER BY key COLLATE "C"
     ON CONFLICT (key) DO UPDATE SET revision = abs(excluded.revision), value = CASE WHEN ${added} ? stored.key
       THEN (stored.value::bigint + excluded.value::bigint)::text ELSE excluded.value END
     WHERE excluded.revision <> 0
       AND (NOT ${expected} ? stored.key OR stored.revision = (${expected} ->> stored.key)::bigint)
     RETURNING revision)
   SELECT count(*) AS count ${into} FROM written WHERE revision > 0`;

/** Whether a row that was only locked is as expected. One that was absent is there now, with revision 0. */
const asExpected = (expected: string) =>
  `(NOT ${expected} ? key OR revision = coalesce((${expected} ->> key)::bigint, 0))`;

export const countKept = (
  { table }: PostgresNames,
  { kept, expected }: Pick<CommitArguments, "kept" | "expected">,
  into = "",
) => `SELECT count(*) AS count ${into} FROM ${table} WHERE key = ANY(${list(kept)}) AND ${asExpected(expected)}`;

export const removeRows = (
  { table }: PostgresNames,
  { removed, expected }: Pick<CommitArguments, "removed" | "expected">,
) => `DELETE FROM ${table} WHERE key = ANY(${list(removed)}) AND ${asExpected(expected)}`;

export const clearRange = ({ table }: PostgresNames, low: string, high: string) =>
  `DELETE FROM ${table} WHERE key >= ${low} AND key < ${high}`;

/** Moves no row when the lane is not where this process left it, because it was closed, or when the layout is another one. */
export const moveLane = ({ meta }: PostgresNames, lane: string, from: string, to: string, layout: string) =>
  `UPDATE ${meta} SET value = ${to} WHERE key = ${lane} AND value = ${from}
     AND (SELECT value FROM ${meta} WHERE key = 'schema') = ${layout}`;

/** The types of the function's parameters, in the order of `callValues`. */
const PARAMETERS = {
  lane: "text",
  lane_from: "text",
  lane_to: "text",
  layout: "text",
  cleared: "text[]",
  keys: "text",
  texts: "text",
  revisions: "text",
  expected: "jsonb",
  added: "jsonb",
  removed: "text",
  kept: "text",
  /** How many rows are written, removed and kept when everything is as expected. */
  wanted: "int",
};

const TYPES = Object.values(PARAMETERS).join(", ");

/** In the name, since processes of several releases work on one database: a function that changes gets another number. */
const FUNCTION_VERSION = 1;

export const commitFunction = ({ schema }: PostgresNames, citus: boolean) =>
  `${schema}.penstock_commit_${LAYOUT_VERSION}_${FUNCTION_VERSION}${citus ? "_citus" : ""}`;

/** To find it, as `regprocedure` writes it. */
export const commitSignature = (name: string) => `${name}(${TYPES})`;

/**
 * The function gives null when everything is written. Otherwise nothing is, and it gives `lane`, or what `wrongRows` found. Its plans are
 * made once, while the table may be empty, and are used when it is large: hence each row is looked up by its key, whatever the planner
 * thinks of a small table. Planning anew for the number of rows would cost more than the commit. Citus makes no such plan.
 */
export function createCommitFunction(names: PostgresNames, citus: boolean): string {
  const parameters = Object.entries(PARAMETERS).map(([name, type]) => `${name} ${type}`);
  // Advisory locks are those of one node, so all commits enter by the one that holds the schema. What the lane has locked is not moved
  // before the transaction ends.
  const otherNode = `IF (SELECT groupid FROM pg_dist_local_group) <> (${names.holder}) THEN
      RAISE EXCEPTION 'another node holds the schema' USING ERRCODE = '${OTHER_SERVER}';
    END IF;`;
  const variables = Object.fromEntries(
    Object.keys(PARAMETERS).map((name) => [name, name]),
  ) as unknown as CommitArguments;
  return `CREATE OR REPLACE FUNCTION ${commitFunction(names, citus)}(${parameters.join(", ")}) RETURNS text
  LANGUAGE plpgsql ${citus ? "" : "SET plan_cache_mode = force_generic_plan "}SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
  AS $penstock$
  DECLARE
    wrong text;
    prefix text;
    found_now int;
    found_all int;
  BEGIN
    IF cleared IS NULL THEN
      PERFORM ${names.shared};
    ELSE
      PERFORM ${names.alone};
    END IF;
    IF expected <> '{}' THEN
      ${wrongRows(names, variables, "INTO wrong")};
      IF wrong IS NOT NULL THEN
        RETURN wrong;
      END IF;
    END IF;
    ${moveLane(names, "lane", "lane_from", "lane_to", "layout")};
    IF NOT FOUND THEN
      RETURN 'lane';
    END IF;
    ${citus ? otherNode : ""}
    IF cleared IS NOT NULL THEN
      FOREACH prefix IN ARRAY cleared LOOP
        ${clearRange(names, "prefix", "prefix || chr(127)")};
      END LOOP;
      -- Nobody else has changed anything since it was checked.
      expected := '{}';
    END IF;
    ${writeRows(names, variables, "INTO found_all")};
    IF kept <> '' THEN
      ${countKept(names, variables, "INTO found_now")};
      found_all := found_all + found_now;
    END IF;
    IF removed <> '' THEN
      ${removeRows(names, variables)};
      GET DIAGNOSTICS found_now = ROW_COUNT;
      found_all := found_all + found_now;
    END IF;
    IF found_all <> wanted THEN
      RAISE EXCEPTION 'rows have changed' USING ERRCODE = '${ROWS_CHANGED}';
    END IF;
    RETURN NULL;
  END $penstock$`;
}

export const callCommit = (name: string) =>
  `SELECT ${name}(${Object.values(PARAMETERS)
    .map((type, index) => `$${index + 1}::${type}`)
    .join(", ")}) AS answer`;
