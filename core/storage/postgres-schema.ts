/** Creates the tables, and checks that this release can read and write their version. */
import { LAYOUT_VERSION, type LayoutStep, pendingSteps, type StoreLayout } from "./layout.ts";
import { POSTGRES_META, type PostgresDatabase, type Session } from "./postgres-database.ts";

/** What a step is given: a session in a transaction, and the table with the rows of its version. */
interface PostgresUpgrade extends Pick<Session, "query"> {
  readonly table: string;
}

export type PostgresLayout = StoreLayout<PostgresUpgrade>;

export const POSTGRES_LAYOUT: PostgresLayout = { version: LAYOUT_VERSION, steps: [] };

/** The first version that was released; its table has no number in its name. */
const FIRST_VERSION = 2;

/** Of another version is another name: processes of an older release, which are still running, then find no table. */
export const tableOf = (version: number): string => (version === FIRST_VERSION ? "penstock" : `penstock_${version}`);

export const TABLE = `public.${tableOf(LAYOUT_VERSION)}`;

/** The sequence of revisions rises by this much for each group of commits. */
export const REVISIONS_PER_GROUP = 1024;

/** Key of an advisory lock, so that processes that start at once wait for each other. Any number that nobody else uses. */
export const LOCK_KEY = 7_363_774_101;

/** `COLLATE "C"` sorts keys by their bytes, whatever the language of the database is. */
const CREATE_TABLES = [
  `CREATE TABLE IF NOT EXISTS ${TABLE} (key text COLLATE "C" PRIMARY KEY, value text NOT NULL, revision bigint NOT NULL)`,
  `CREATE SEQUENCE IF NOT EXISTS public.penstock_revision INCREMENT BY ${REVISIONS_PER_GROUP}`,
  `CREATE TABLE IF NOT EXISTS public.${POSTGRES_META} (key text PRIMARY KEY, value text)`,
  `INSERT INTO public.${POSTGRES_META} VALUES ('schema', '${LAYOUT_VERSION}') ON CONFLICT DO NOTHING`,
];

/**
 * Creates what is missing.
 * @throws Error with a message for the user when the database is of another version
 */
export async function preparePostgresSchema(database: PostgresDatabase): Promise<void> {
  const [table] = await database.query(`SELECT to_regclass('public.${POSTGRES_META}') AS found`);
  if (table?.found === null) {
    await database.transaction(async (session) => {
      await session.query({ text: "SELECT pg_advisory_xact_lock($1)", values: [LOCK_KEY] });
      for (const text of CREATE_TABLES) await session.query({ text });
    });
  }
  if ((await pendingPostgresSteps(database)).length === 0) return;
  throw new Error(
    `it was written by an older version (schema ${await postgresVersion(database)}; this one needs ${LAYOUT_VERSION}): ` +
      "stop all processes, make a backup with pg_dump, and run penstock migrate",
  );
}

export const postgresVersion = async (database: PostgresDatabase): Promise<number> =>
  Number(await database.get("schema"));

/** @throws Error with a message for the user when this release cannot use the database */
export async function pendingPostgresSteps(
  database: PostgresDatabase,
  layout = POSTGRES_LAYOUT,
): Promise<readonly LayoutStep<PostgresUpgrade>[]> {
  return pendingSteps(layout, await postgresVersion(database), { where: "it", instead: "another database" });
}
