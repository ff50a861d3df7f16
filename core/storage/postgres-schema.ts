/** Creates the tables and the function, and checks that this release can read and write their version. */
import type { Logger } from "pino";
import { LAYOUT_VERSION, type LayoutStep, pendingSteps, type StoreLayout } from "./layout.ts";
import { commitFunction, commitSignature, createCommitFunction } from "./postgres-commit-sql.ts";
import type { Session } from "./postgres-connections.ts";
import type { PostgresDatabase } from "./postgres-database.ts";
import { NO_REVISIONS } from "./postgres-lane.ts";
import type { PostgresNames } from "./postgres-names.ts";

/** What a step is given: a session in a transaction, and the table with the rows of its version. */
interface PostgresUpgrade extends Pick<Session, "query"> {
  readonly table: string;
}

export type PostgresLayout = StoreLayout<PostgresUpgrade>;

export const POSTGRES_LAYOUT: PostgresLayout = { version: LAYOUT_VERSION, steps: [] };

/** `COLLATE "C"` sorts keys by their bytes, whatever the language of the database is. */
const createTables = ({ table, meta }: PostgresNames): string[] => [
  `CREATE TABLE IF NOT EXISTS ${table} (key text COLLATE "C" PRIMARY KEY, value text NOT NULL, revision bigint NOT NULL)`,
  `CREATE TABLE IF NOT EXISTS ${meta} (key text PRIMARY KEY, value text)`,
  `INSERT INTO ${meta} VALUES ('schema', '${LAYOUT_VERSION}'), ('revisions', '${NO_REVISIONS}') ON CONFLICT DO NOTHING`,
];

/**
 * Creates what is missing.
 * @returns the function that commits call; null where they take several statements
 * @throws Error with a message for the user when the database is of another version
 */
export async function preparePostgresSchema(database: PostgresDatabase, logger: Logger): Promise<string | null> {
  const { names } = database;
  const [{ meta, schema, isolation } = {}] = await database.query(
    "SELECT to_regclass($1) AS meta, to_regnamespace($2) AS schema, current_setting('default_transaction_isolation') AS isolation",
    [names.meta, names.schema],
  );
  if (meta === null) {
    const creation = schema === null ? [`CREATE SCHEMA IF NOT EXISTS ${names.schema}`] : [];
    await createTogether(database, [...creation, ...createTables(names)]);
  }
  if ((await pendingPostgresSteps(database)).length > 0) {
    throw new Error(
      `it was written by an older version (schema ${await postgresVersion(database)}; this one needs ${LAYOUT_VERSION}): ` +
        "stop all processes, make a backup with pg_dump, and run penstock migrate",
    );
  }
  const { citus } = database.connections.server!;
  const name = commitFunction(names, citus);
  let problem = `this user may not make the function ${name}`;
  if (isolation !== "read committed") problem = `default_transaction_isolation is ${isolation}`;
  else {
    const [{ there, possible } = {}] = await database.query(
      `SELECT has_function_privilege(to_regprocedure($1), 'EXECUTE') AS there,
         has_schema_privilege(to_regnamespace($2)::oid, 'CREATE')
           AND EXISTS (SELECT FROM pg_language WHERE lanname = 'plpgsql') AS possible`,
      [commitSignature(name), names.schema],
    );
    if (possible && !there) await createTogether(database, [createCommitFunction(names, citus)]);
    if (there || possible) return name;
  }
  if (citus) throw new Error(`${problem}: on Citus a commit is a call of that function, under read committed`);
  logger.warn(`PostgreSQL: ${problem}: a commit takes several round trips, and not one`);
  return null;
}

/** Processes that start at once wait for each other. */
export const createTogether = (database: PostgresDatabase, statements: readonly string[]): Promise<void> =>
  database.write((session) => session.transaction([`SELECT ${database.names.alone}`, ...statements], async () => true));

export const postgresVersion = async (database: PostgresDatabase): Promise<number> =>
  Number(await database.get("schema"));

/** @throws Error with a message for the user when this release cannot use the database */
export async function pendingPostgresSteps(
  database: PostgresDatabase,
  layout = POSTGRES_LAYOUT,
): Promise<readonly LayoutStep<PostgresUpgrade>[]> {
  return pendingSteps(layout, await postgresVersion(database), { where: "it", instead: "another database" });
}
