/** A PostgreSQL with pgvector for tests: the server that PENSTOCK_TEST_POSTGRES names, where it has the extension, or else PGlite. */
import pg from "pg";
import { startPGlite } from "./pglite.ts";
import { startPostgres } from "./postgres.ts";

interface PgvectorServer {
  readonly name: string;
  /** An empty schema: its name, and the URL of the store in it. */
  createSchema(): Promise<{ schema: string; url: string }>;
  /** Runs statements in the database of the schemas, as its owner. */
  query(sql: string): Promise<Record<string, unknown>[]>;
  close(): Promise<void>;
}

export async function startPgvector(): Promise<PgvectorServer> {
  return (await useServer()) ?? (await usePGlite());
}

async function useServer(): Promise<PgvectorServer | null> {
  if (!process.env.PENSTOCK_TEST_POSTGRES) return null;
  const server = await startPostgres();
  if (server === null) return null;
  const found = await server.query("SELECT FROM pg_available_extensions WHERE name = 'vector'");
  if (found.length > 0) {
    const { close } = server;
    return { name: "a server", ...schemasOf(await server.createDatabase()), close };
  }
  await server.close();
  return null;
}

async function usePGlite(): Promise<PgvectorServer> {
  const { url, close } = await startPGlite();
  return { name: "PGlite", ...schemasOf(url), close };
}

function schemasOf(database: string): Pick<PgvectorServer, "createSchema" | "query"> {
  let schemas = 0;
  return {
    async createSchema() {
      const schema = `s${++schemas}`;
      return { schema, url: `${database}?schema=${schema}` };
    },
    async query(sql) {
      const pool = new pg.Pool({ connectionString: database, max: 1 });
      pool.on("error", () => undefined);
      try {
        const result = await pool.query({ text: sql });
        return ([result].flat().at(-1) as typeof result).rows;
      } finally {
        await pool.end();
      }
    },
  };
}
