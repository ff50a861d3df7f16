/** The tables, and which version of them this release reads and writes. */
import { POSTGRES_META, type PostgresDatabase } from "./postgres-database.ts";

/** Rises with every change of tables and keys that an older version could not work with. */
const VERSION = 2;

export const TABLE = "public.penstock";

/** Revisions that one group of commits may give out. */
export const REVISIONS_PER_GROUP = 1024;

/** Processes that start at once wait for each other; any number that nobody else is likely to lock. */
const LOCK = 7_363_774_101;

/** `COLLATE "C"`: keys are ordered by their bytes, whatever the language of the database is. */
const TABLES = [
  `CREATE TABLE IF NOT EXISTS ${TABLE} (key text COLLATE "C" PRIMARY KEY, value text NOT NULL, revision bigint NOT NULL)`,
  `CREATE SEQUENCE IF NOT EXISTS public.penstock_revision INCREMENT BY ${REVISIONS_PER_GROUP}`,
  `CREATE TABLE IF NOT EXISTS public.${POSTGRES_META} (key text PRIMARY KEY, value text)`,
  `INSERT INTO public.${POSTGRES_META} VALUES ('schema', '${VERSION}') ON CONFLICT DO NOTHING`,
];

/**
 * Creates what is missing.
 * @throws Error for a person when the database is of another version
 */
export async function preparePostgresSchema(database: PostgresDatabase): Promise<void> {
  const [table] = await database.query(`SELECT to_regclass('public.${POSTGRES_META}') AS found`);
  if (table?.found === null) {
    await database.transaction(async (session) => {
      await session.query({ text: "SELECT pg_advisory_xact_lock($1)", values: [LOCK] });
      for (const text of TABLES) await session.query({ text });
    });
  }
  const version = Number(await database.get("schema"));
  if (version === VERSION) return;
  if (version < VERSION) {
    throw new Error(
      `it was written by a version before the first release (schema ${version}; this one needs ${VERSION}): name another database`,
    );
  }
  throw new Error(
    `it was written by a newer version (schema ${version}; this one knows ${VERSION}): ` +
      "run that version, or name another database",
  );
}
