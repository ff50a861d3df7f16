/** Brings a PostgreSQL database of an older layout to the present one, on command: a start cannot know who else uses it. */
import type { QueryConfig } from "pg";
import type { Logger } from "pino";
import type { Session } from "./postgres-connections.ts";
import {
  POSTGRES_LAYOUT,
  PostgresDatabase,
  type PostgresLayout,
  pendingPostgresSteps,
  postgresVersion,
} from "./postgres-database.ts";
import { tableOf } from "./postgres-names.ts";

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
  const { schema, meta, alone } = database.names;
  try {
    await database.examine();
    const [table] = await database.query("SELECT to_regclass($1) AS found", [meta]);
    if (table?.found === null) return false;
    const steps = await pendingPostgresSteps(database, layout);
    if (steps.length === 0) return false;
    const version = await postgresVersion(database);
    const upgrade = async (session: Session) => {
      const query = (statement: QueryConfig) => session.query({ ...statement, query_timeout: QUERY_TIMEOUT_MS });
      const { rows } = await query({ text: `SELECT value FROM ${meta} WHERE key = 'schema'` });
      if (Number(rows[0]?.value) !== version) throw new TypeError("another process upgrades the database");
      const from = `${schema}.${tableOf(version)}`;
      for (const { apply } of steps) await apply({ query, table: from });
      await query({ text: `ALTER TABLE ${from} RENAME TO ${tableOf(layout.version)}` });
      await query({ text: `UPDATE ${meta} SET value = $1 WHERE key = 'schema'`, values: [String(layout.version)] });
      return true;
    };
    // Nobody commits meanwhile.
    const first = ["SET LOCAL statement_timeout = 0", `SELECT ${alone}`];
    await database.write((session) => session.transaction(first, () => upgrade(session)));
    for (const { from, what } of steps) report(`upgraded from schema ${from} to ${from + 1}: ${what}`);
    return true;
  } finally {
    await database.disconnect();
  }
}
