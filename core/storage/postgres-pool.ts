/** A pool of connections that no failure of a connection can end the process with. */
import pg, { type Pool, type PoolClient } from "pg";
import type { Logger } from "pino";

const CONNECT_TIMEOUT = 5_000;
const QUERY_TIMEOUT = 30_000;
const IDLE_TIMEOUT = 30_000;

/** @param max connections; none is made before the first query */
export function createPool(url: string, max: number, logger: Logger): Pool {
  const pool = new pg.Pool({
    connectionString: url,
    application_name: "penstock",
    max,
    connectionTimeoutMillis: CONNECT_TIMEOUT,
    query_timeout: QUERY_TIMEOUT,
    idleTimeoutMillis: IDLE_TIMEOUT,
    keepAlive: true,
  });
  // An `error` event without a listener ends the process, and a connection may break at any time: idle, in use, or
  // between the two. The pool replaces it; whoever was using it hears of it from the query.
  pool.on("error", (error) => logger.debug({ err: error }, "an idle connection to PostgreSQL broke"));
  pool.on("connect", (client: PoolClient) => client.on("error", () => undefined));
  return pool;
}
