/** Brings a PostgreSQL database of an older layout to the present one, on command: a start cannot know who else uses it. */
import type { QueryConfig } from "pg";
import type { Logger } from "pino";
import { POSTGRES_META, PostgresDatabase } from "./postgres-database.ts";
import {
  LOCK_KEY,
  POSTGRES_LAYOUT,
  type PostgresLayout,
  pendingPostgresSteps,
  postgresVersion,
  tableOf,
} from "./postgres-schema.ts";

/** A statement may go through the whole table. As many milliseconds as a timer takes. */
const QUERY_TIMEOUT_MS = 2 ** 31 - 1;

interface UpgradeOptions {
  readonly layout?: PostgresLayout;
  readonly logger: Logger;
  /** Told what was done, in lines. */
  report(line: string): void;
}

/**
 * One transaction: the database is of the old version or of the new one. Processes of the old version, also those that were paused
 * meanwhile, find no table from then on, and write nothing into what they do not know.
 *
 * @returns whether there was anything to do
 * @throws Error with a message for the user
 */
export async function migratePostgres(
  url: string,
  { layout = POSTGRES_LAYOUT, logger, report }: UpgradeOptions,
): Promise<boolean> {
  const database = new PostgresDatabase(url, logger);
  try {
    const [meta] = await database.query(`SELECT to_regclass('public.${POSTGRES_META}') AS found`);
    if (meta?.found === null) return false;
    const steps = await pendingPostgresSteps(database, layout);
    if (steps.length === 0) return false;
    const version = await postgresVersion(database);
    await database.transaction(async (session) => {
      const query = (statement: QueryConfig) => session.query({ ...statement, query_timeout: QUERY_TIMEOUT_MS });
      await query({ text: "SELECT pg_advisory_xact_lock($1)", values: [LOCK_KEY] });
      await query({ text: "SET LOCAL statement_timeout = 0" });
      const { rows } = await query({ text: `SELECT value FROM public.${POSTGRES_META} WHERE key = 'schema'` });
      if (Number(rows[0]?.value) !== version) throw new TypeError("another process upgrades the database");
      const from = tableOf(version);
      for (const { apply } of steps) await apply({ query: query as typeof session.query, table: `public.${from}` });
      await query({ text: `ALTER TABLE public.${from} RENAME TO ${tableOf(layout.version)}` });
      const values = [String(layout.version)];
      await query({ text: `UPDATE public.${POSTGRES_META} SET value = $1 WHERE key = 'schema'`, values });
    });
    for (const { from, what } of steps) report(`upgraded from schema ${from} to ${from + 1}: ${what}`);
    return true;
  } finally {
    await database.disconnect();
  }
}
