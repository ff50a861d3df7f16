/** A pool of connections that survives the failure of any of them. */
import pg, { type Pool, type PoolClient } from "pg";
import type { Logger } from "pino";

const CONNECT_TIMEOUT_MS = 5_000;
/** A scan of a large table lives that long. */
const STATEMENT_TIMEOUT_MS = 30_000;
/** Longer: what the server says about it comes first. This one is for a server that does not answer. */
const QUERY_TIMEOUT_MS = STATEMENT_TIMEOUT_MS + 1_000;
/** A process that is stopped in its transaction keeps its rows locked, and all others wait: the server ends it after so long. */
const IDLE_TRANSACTION_TIMEOUT_MS = 1_000;
/** Longer, so that who waits for such a process outlasts it. */
const LOCK_TIMEOUT_MS = 5_000;
const IDLE_TIMEOUT_MS = 30_000;

/**
 * @param url settings in it, such as `?statement_timeout=120000` in milliseconds, go before those of here
 * @param max connections; none is made before the first query
 * @param bounded whether the server is told the bounds of its sessions
 */
export function createPool(url: string, max: number, bounded: boolean, logger: Logger): Pool {
  const pool = new pg.Pool({
    connectionString: url,
    application_name: "penstock",
    max,
    connectionTimeoutMillis: CONNECT_TIMEOUT_MS,
    query_timeout: QUERY_TIMEOUT_MS,
    ...(bounded && {
      statement_timeout: STATEMENT_TIMEOUT_MS,
      lock_timeout: LOCK_TIMEOUT_MS,
      idle_in_transaction_session_timeout: IDLE_TRANSACTION_TIMEOUT_MS,
    }),
    idleTimeoutMillis: IDLE_TIMEOUT_MS,
    keepAlive: true,
  });
  // An `error` event without a listener ends the process, and a connection may break at any time. The pool replaces it, and the
  // query that was using it rejects.
  pool.on("error", (error) => logger.debug({ err: error }, "an idle connection to PostgreSQL broke"));
  pool.on("connect", (client: PoolClient) => client.on("error", () => undefined));
  return pool;
}
