/** Keyv's adapter for PostgreSQL with pools of its own, transactions, and recovery when the server comes back. */
import { setTimeout as sleep } from "node:timers/promises";
import { KeyvPostgres } from "@keyv/postgres";
import type { Pool, PoolClient, QueryConfig, QueryResult } from "pg";
import type { Logger } from "pino";
import { ServiceError, unavailable } from "../lib/errors.ts";
import { createHealth, type Health, type Side } from "./health.ts";
import { LAYOUT_VERSION } from "./layout.ts";
import {
  explainPostgres,
  isConflict,
  isPostgresConnectionLost,
  isStatementError,
  mayWorkOnAnotherConnection,
} from "./postgres-errors.ts";
import { createPool } from "./postgres-pool.ts";

/** The table of Keyv's adapter, which keeps the version of the schema: key, value. */
export const POSTGRES_META = "penstock_meta";

const UPGRADED = "a newer version has upgraded the database";

/** Runs the statements of one transaction. */
export type Session = Pick<PoolClient, "query">;

/** @param first the first row of the query that was sent together with BEGIN */
type PostgresWork<T> = (session: Session, first: Record<string, unknown>) => Promise<T>;

const READ_CONNECTIONS = 8;
/** One transaction writes at a time; the other connection is for the case that the first one hangs. */
const WRITE_CONNECTIONS = 2;
const MAX_CONFLICT_TRIES = 12;
const MAX_CONFLICT_PAUSE_MS = 100;
/** When the server has closed all connections, several of the pool may fail one after the other. */
const MAX_LOST_CONNECTION_TRIES = 4;
/** How long, and how often, the server is asked for the outcome of a transaction whose connection broke. */
const OUTCOME_TIMEOUT_MS = 2_000;
const OUTCOME_PAUSE_MS = 50;
/** For short queries on which a caller waits that has more to do. */
const SHORT_QUERY_TIMEOUT_MS = 2_000;

/** One round trip. With the transaction's number its outcome can be asked for later. */
const BEGIN = "BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT txid_current()::text AS transaction";

/**
 * The original adapter has four problems. Its pool has no listener for errors, so that an idle connection that breaks ends the process.
 * It takes any connection for each query, so that there are no transactions. It creates its table with keys of 255 characters, sorted
 * by some language. And when its first query fails, it never works again. Here the connections and the tables (postgres-schema.ts) are
 * our own.
 *
 * All methods reject with ServiceError `unavailable` while the server cannot work, and with the server's error when the statement is
 * wrong.
 */
export class PostgresDatabase extends KeyvPostgres {
  readonly #readers: Pool;
  readonly #writers: Pool;
  readonly #health: Health;
  readonly #logger: Logger;
  #closed: Promise<void> | null = null;

  /** @param url `postgres://user:password@host:port/database`. Nothing is connected before the first query. */
  constructor(url: string, logger: Logger) {
    super({ uri: url, table: POSTGRES_META });
    this.#readers = createPool(url, READ_CONNECTIONS, logger);
    this.#writers = createPool(url, WRITE_CONNECTIONS, logger);
    this.#health = createHealth(logger, "PostgreSQL", explainPostgres);
    this.#logger = logger;
    this.query = async (text: string, values: unknown[] = []) =>
      (await this.#query("write", this.#writers, { text, values }, 1)).rows;
  }

  /** The adapter's constructor calls this to create its table, before this class has fields: it must send nothing. */
  override async connect(): Promise<(sql: string, values?: unknown) => Promise<unknown[]>> {
    return async () => [];
  }

  /** A statement that may safely run twice. */
  read(statement: QueryConfig): Promise<QueryResult> {
    return this.#query("read", this.#readers, statement, MAX_LOST_CONNECTION_TRIES);
  }

  /**
   * Runs `work` in a SERIALIZABLE transaction, and again after a conflict with another process.
   * @param first a query that is sent together with BEGIN; `work` gets its first row
   */
  async transaction<T>(work: PostgresWork<T>, first = ""): Promise<T> {
    for (let tries = 1; ; tries++) {
      try {
        const result = await this.#attempt(work, first);
        this.#health.worked("write");
        return result;
      } catch (error) {
        const retry = isConflict(error)
          ? tries < MAX_CONFLICT_TRIES
          : mayWorkOnAnotherConnection(error) && tries < MAX_LOST_CONNECTION_TRIES;
        if (!retry || error instanceof ServiceError || this.#closed !== null) throw this.#failed("write", error);
        if (isConflict(error)) await sleep(Math.random() * Math.min(2 ** tries, MAX_CONFLICT_PAUSE_MS));
      }
    }
  }

  /** Why the database cannot be used now, or null. */
  async problem(): Promise<string | null> {
    if (this.#closed !== null) return "storage is closed";
    const text = `SELECT current_setting('transaction_read_only') AS only,
      (SELECT value FROM public.${POSTGRES_META} WHERE key = 'schema') AS schema`;
    const found = await this.#query(
      "read",
      this.#readers,
      { text, query_timeout: SHORT_QUERY_TIMEOUT_MS },
      MAX_LOST_CONNECTION_TRIES,
    ).then(
      ({ rows }) => rows[0],
      () => undefined,
    );
    if (found !== undefined && found.schema !== String(LAYOUT_VERSION)) return UPGRADED;
    const { problem } = this.#health;
    // After a failure a write is tried here, since there may be no other write to show that it works again.
    if (found !== undefined && problem("write") !== null) {
      await this.transaction(async () => undefined).catch(() => undefined);
    }
    return problem("read") ?? problem("write") ?? (found?.only === "on" ? "the database is read-only" : null);
  }

  /** Waits for the running queries. A second call has no effect. */
  override disconnect(): Promise<void> {
    this.#closed ??= Promise.all([this.#readers.end(), this.#writers.end()]).then(() => undefined);
    return this.#closed;
  }

  async #query(side: Side, pool: Pool, statement: QueryConfig, tries: number): Promise<QueryResult> {
    for (let attempt = 1; ; attempt++) {
      try {
        const result = await pool.query(statement);
        this.#health.worked(side);
        return result;
      } catch (error) {
        if (attempt >= tries || !mayWorkOnAnotherConnection(error)) throw this.#failed(side, error);
      }
    }
  }

  #failed(side: Side, error: unknown): unknown {
    if (error instanceof ServiceError || isStatementError(error)) return error;
    return this.#closed === null ? this.#health.failed(side, error) : unavailable("storage is closed");
  }

  async #attempt<T>(work: PostgresWork<T>, first: string): Promise<T> {
    const client = await this.#writers.connect();
    let transaction = "";
    let done: { result: T } | null = null;
    try {
      const [, begun, given] = (await client.query(`${BEGIN}; ${first}`)) as QueryResult[];
      transaction = String(begun?.rows[0]?.transaction);
      done = { result: await work(client, given?.rows[0] ?? {}) };
      const ended = (await client.query("COMMIT")) as QueryResult;
      // A transaction that has failed answers COMMIT with ROLLBACK, and no error.
      if (ended.command !== "COMMIT") throw new Error(`the transaction ended with ${ended.command}`);
      client.release();
      return done.result;
    } catch (error) {
      if (isPostgresConnectionLost(error)) client.release(true);
      else await rollback(client);
      // When the connection broke after COMMIT was sent, only the server knows the outcome.
      const outcome = done !== null && isPostgresConnectionLost(error) ? await this.#outcome(transaction) : "aborted";
      if (done !== null && outcome === "committed") return done.result;
      if (outcome === "aborted") throw error;
      this.#health.failed("write", error);
      this.#logger.error({ err: error, transaction }, "PostgreSQL: a commit may have happened, its connection broke");
      throw unavailable("storage is unavailable: the connection was lost during the commit, which may have happened");
    }
  }

  async #outcome(transaction: string): Promise<"committed" | "aborted" | "unknown"> {
    const text = "SELECT txid_status($1::bigint) AS status";
    const statement = { text, values: [transaction], query_timeout: SHORT_QUERY_TIMEOUT_MS };
    const end = performance.now() + OUTCOME_TIMEOUT_MS;
    while (performance.now() < end) {
      const status = await this.#readers.query(statement).then(
        ({ rows }) => rows[0]?.status,
        () => undefined,
      );
      if (status === "committed" || status === "aborted") return status;
      await sleep(OUTCOME_PAUSE_MS);
    }
    return "unknown";
  }
}

/** Gives the connection back, or closes it when it does not even roll back. */
async function rollback(client: PoolClient): Promise<void> {
  try {
    await client.query("ROLLBACK");
    client.release();
  } catch {
    client.release(true);
  }
}
