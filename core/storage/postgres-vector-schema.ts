/** Finds out whether a database can compare vectors, and makes what is needed for it. */
import { messageOf } from "../lib/errors.ts";
import { createTogether, type PostgresDatabase } from "./postgres-database.ts";
import { explainPostgres, isRefusal } from "./postgres-errors.ts";
import { type VectorNames, WALKED } from "./postgres-vector-names.ts";
import { createNotes } from "./postgres-vector-sql.ts";

/** Below, it has no `halfvec`, or an index gives fewer rows than there are where others are nearer. */
const LEAST_VERSION = [0, 8] as const;

interface VectorExtension {
  readonly version: string;
  /** In which schema it is, quoted. */
  readonly schema: string;
}

interface MissingExtension {
  /** For the user, after "vectors are not compared in the database:". */
  readonly problem: string;
  /** It was in use before. */
  readonly wasUsed: boolean;
}

function examine({ schema, notes, note, table, tablePrefix, trigger, meta, walk }: VectorNames): string {
  const tables = `FROM pg_class WHERE relkind = 'r' AND relnamespace = to_regnamespace('${schema}') AND starts_with(relname, '${tablePrefix}')`;
  const extension = "FROM pg_extension JOIN pg_namespace AS space ON space.oid = extnamespace WHERE extname = 'vector'";
  return `SELECT (SELECT extversion ${extension}) AS version, (SELECT quote_ident(nspname) ${extension}) AS schema,
     (SELECT has_schema_privilege(space.oid, 'USAGE') ${extension}) AS usable,
     EXISTS (SELECT FROM pg_available_extensions WHERE name = 'vector') AS available,
     EXISTS (SELECT FROM ${meta} WHERE key = '${walk}') AS used,
     to_regclass('${notes}') IS NOT NULL AND to_regproc('${note}') IS NOT NULL
       AND 2 = (SELECT count(*) FROM pg_trigger WHERE tgrelid = '${table}'::regclass AND tgname LIKE '${trigger}\\_%' AND tgenabled <> 'D')
       AND EXISTS (SELECT FROM ${meta} WHERE key = '${walk}') AS complete,
     has_schema_privilege(to_regnamespace('${schema}')::oid, 'CREATE')
       AND (SELECT bool_and(pg_has_role(relowner, 'USAGE')) FROM pg_class
         WHERE oid IN ('${table}'::regclass, to_regclass('${notes}')) OR oid IN (SELECT oid ${tables})) AS possible,
     (SELECT string_agg(oid::regclass::text, ', ') ${tables}) AS tables,
     EXISTS (SELECT ${tables}
       AND NOT EXISTS (SELECT FROM pg_attribute WHERE attrelid = pg_class.oid AND attname = 'embedding' AND NOT attisdropped))
     OR EXISTS (SELECT FROM ${meta} WHERE starts_with(key, '${tablePrefix}') AND to_regclass('${schema}.' || key) IS NULL) AS damaged`;
}

/**
 * Creates what is missing. Where the extension was dropped, and with it the vectors, everything is made anew from the rows.
 *
 * @param prefix of the rows with vectors
 * @throws ServiceError `unavailable`
 */
export async function prepareVectors(
  database: PostgresDatabase,
  names: VectorNames,
  prefix: string,
): Promise<VectorExtension | MissingExtension> {
  if (database.connections.server?.citus) return { problem: "Citus has no triggers", wasUsed: false };
  let [found = {}] = await database.query(examine(names));
  const missing = (problem: string): MissingExtension => ({ problem, wasUsed: found.used === true });
  if (found.possible !== true) return missing("this user does not own its tables, or may not make more in its schema");
  if (found.version === null) {
    if (found.available !== true) return missing("it has no extension vector (pgvector)");
    const problem = await createExtension(database);
    // Where it failed, another process may have done it at the same time.
    [found = {}] = await database.query(examine(names));
    if (found.version === null) return missing(`the extension vector (pgvector) cannot be created: ${problem}`);
  }
  if (found.usable !== true)
    return missing("this user may not use the schema in which the extension vector (pgvector) is");
  const version = String(found.version);
  if (!isEnough(version)) {
    return missing(`its extension vector (pgvector) is ${version}, and ${LEAST_VERSION.join(".")} is needed`);
  }
  if (found.complete !== true || found.damaged === true) {
    const old = [names.notes, ...(found.tables === null ? [] : [String(found.tables)])];
    await createTogether(database, [`DROP TABLE IF EXISTS ${old.join(", ")}`, ...createNotes(names, prefix)]);
  }
  return { version, schema: String(found.schema) };
}

/** @returns why not, or null. It is no failure of the store where this user may not do it */
async function createExtension(database: PostgresDatabase): Promise<string | null> {
  const pool = database.connections.createPool(1);
  try {
    await database.use(pool, (session) => session.query({ text: "CREATE EXTENSION IF NOT EXISTS vector" }));
    return null;
  } catch (error) {
    return isRefusal(error) ? messageOf(error) : explainPostgres(error);
  } finally {
    await pool.end();
  }
}

function isEnough(version: string): boolean {
  const [major = 0, minor = 0] = version.split(".").map(Number);
  return major > LEAST_VERSION[0] || (major === LEAST_VERSION[0] && minor >= LEAST_VERSION[1]);
}

export const isWalked = (position: unknown): boolean => position === WALKED;
