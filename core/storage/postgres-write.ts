/** Writes a group of commits in one transaction of PostgreSQL. */
import { prefixEnd } from "./encoding.ts";
import { type Change, type Changes, expectedKeys, mergeCommits } from "./group.ts";
import type { PostgresDatabase, Session } from "./postgres-database.ts";
import { isStatementError } from "./postgres-errors.ts";
import { TABLE } from "./postgres-schema.ts";
import type { Commit } from "./store.ts";

/** The driver returns a bigint as text. */
const NEXT_REVISION = "SELECT nextval('public.penstock_revision') AS base";

const upsert = (keys: number, value: string): string =>
  `INSERT INTO ${TABLE} AS stored (key, value, revision)
     SELECT * FROM unnest($${keys}::text[], $${keys + 1}::text[], $${keys + 2}::bigint[])
     ON CONFLICT (key) DO UPDATE SET revision = excluded.revision, value = ${value}`;

/** The three parts of this statement run in no fixed order, which is safe because no row is in two of them. */
const WRITE = `WITH removed AS (DELETE FROM ${TABLE} WHERE key = ANY($1::text[])),
  written AS (${upsert(2, "excluded.value")})
  ${upsert(5, "(stored.value::bigint + excluded.value::bigint)::text")}`;

/**
 * Returns the revision of each commit, or its error. When PostgreSQL refuses the content of one commit, the others are written again without it,
 * one by one, so that it fails alone.
 *
 * @throws ServiceError `unavailable`
 */
export async function writeGroup(database: PostgresDatabase, group: readonly Commit[]): Promise<(number | Error)[]> {
  try {
    return await database.transaction((session, { base }) => writeCommits(session, group, Number(base)), NEXT_REVISION);
  } catch (error) {
    if (!isStatementError(error)) throw error;
    if (group.length === 1) return [error as Error];
  }
  const results: (number | Error)[] = [];
  for (const commit of group) {
    // The commits before it are written already, whatever happens to this one.
    results.push(...(await writeGroup(database, [commit]).catch((error: Error) => [error])));
  }
  return results;
}

async function writeCommits(session: Session, group: readonly Commit[], base: number): Promise<(number | Error)[]> {
  const keys = expectedKeys(group);
  const stored = keys.length === 0 ? new Map<string, number>() : await storedRevisions(session, keys);
  const { changes, results } = mergeCommits(group, stored, base);
  await write(session, changes);
  return results;
}

async function storedRevisions(session: Session, keys: readonly string[]): Promise<Map<string, number>> {
  const { rows } = await session.query({
    name: "penstock-expect",
    text: `SELECT key, revision FROM ${TABLE} WHERE key = ANY($1::text[])`,
    values: [keys],
  });
  return new Map(rows.map((row) => [row.key as string, Number(row.revision)]));
}

async function write(session: Session, changes: Changes): Promise<void> {
  for (const prefix of changes.clear) {
    await session.query({
      name: "penstock-clear",
      text: `DELETE FROM ${TABLE} WHERE key >= $1 AND key < $2`,
      values: [prefix, prefixEnd(prefix)],
    });
  }
  if (changes.rows.length === 0) return;
  const of = (wanted: Change["kind"]): Change[] => changes.rows.filter(({ kind }) => kind === wanted);
  const removed = of("delete").map(({ key }) => key);
  const values = [removed, ...columns(of("put")), ...columns(of("add"))];
  await session.query({ name: "penstock-write", text: WRITE, values });
}

const columns = (rows: readonly Change[]): [string[], string[], number[]] => [
  rows.map(({ key }) => key),
  rows.map(({ value }) => value),
  rows.map(({ revision }) => revision),
];
