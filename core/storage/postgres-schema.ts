/** Creates the tables, and checks that this release can read and write their version. */
import { POSTGRES_META, type PostgresDatabase } from "./postgres-database.ts";

/** Rises with every incompatible change of tables or keys. */
const VERSION = 2;

export const TABLE = "public.penstock";

/** The sequence of revisions rises by this much for each group of commits. */
export const REVISIONS_PER_GROUP = 1024;

/** Key of an advisory lock, so that processes that start at once wait for each other. Any number that nobody else uses. */
const LOCK_KEY = 7_363_774_101;

/** `COLLATE "C"` sorts keys by their bytes, whatever the language of the database is. */
const CREATE_TABLES = [
  `CREATE TABLE IF NOT EXISTS ${TABLE} (key text COLLATE "C" PRIMARY KEY, value text NOT NULL, revision bigint NOT NULL)`,
  `CREATE SEQUENCE IF NOT EXISTS public.penstock_revision INCREMENT BY ${REVISIONS_PER_GROUP}`,
  `CREATE TABLE IF NOT EXISTS public.${POSTGRES_META} (key text PRIMARY KEY, value text)`,
  `INSERT INTO public.${POSTGRES_META} VALUES ('schema', '${VERSION}') ON CONFLICT DO NOTHING`,
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
