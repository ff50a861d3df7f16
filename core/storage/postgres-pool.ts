/** A pool of connections that survives the failure of any of them. */
import pg, { type Pool, type PoolClient } from "pg";
import type { Logger } from "pino";

const CONNECT_TIMEOUT_MS = 5_000;
const QUERY_TIMEOUT_MS = 30_000;
const IDLE_TIMEOUT_MS = 30_000;

/** @param max connections; none is made before the first query */
export function createPool(url: string, max: number, logger: Logger): Pool {
  const pool = new pg.Pool({
    connectionString: url,
    application_name: "penstock",
    max,
    connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
    query_timeout: QUERY_TIMEOUT_MS,
    idleTimeoutMillis: IDLE_TIMEOUT_MS,
    keepAlive: true,
  });
  // An `error` event without a listener ends the process, and a connection may break at any time. The pool replaces it, and the
  // query that was using it rejects.
  pool.on("error", (error) => logger.debug({ err: error }, "an idle connection to PostgreSQL broke"));
  pool.on("connect", (client: PoolClient) => client.on("error", () => undefined));
  return pool;
}
