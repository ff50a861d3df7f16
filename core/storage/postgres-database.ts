/** Keyv's adapter for PostgreSQL, extended: connections of our own, transactions, and coming back when the server does. */
import { setTimeout as sleep } from "node:timers/promises";
import { KeyvPostgres } from "@keyv/postgres";
import type { Pool, PoolClient, QueryConfig, QueryResult } from "pg";
import type { Logger } from "pino";
import { ServiceError, unavailable } from "../lib/errors.ts";
import { createHealth, type Health, type Side } from "./health.ts";
import {
  explainPostgres,
  isConflict,
  isPostgresConnectionLost,
  isStatementError,
  mayWorkOnAnotherConnection,
} from "./postgres-errors.ts";
import { createPool } from "./postgres-pool.ts";

/** Where Keyv's adapter keeps what describes the database: key, value. */
export const POSTGRES_META = "penstock_meta";

/** Where the statements of one transaction go. */
export type Session = Pick<PoolClient, "query">;

/** @param first the row of the query that travelled with the beginning */
type PostgresWork<T> = (session: Session, first: Record<string, unknown>) => Promise<T>;

const READERS = 8;
/** One transaction at a time writes; another connection is for when that one hangs. */
const WRITERS = 2;
const CONFLICT_TRIES = 12;
/** Milliseconds between them, at most. */
const CONFLICT_PAUSE = 100;
/** When the server ended all connections, we may find out with one after the other. */
const LOST_TRIES = 4;
/** How long, and how many milliseconds apart, we ask what became of a transaction whose connection broke. */
const OUTCOME_TIME = 2_000;
const OUTCOME_PAUSE = 50;
/** Milliseconds that short questions may take: whoever asks them is waiting for more than the answer. */
const QUESTION_TIMEOUT = 2_000;

/** One trip. The number of the transaction tells afterwards whether it was committed. */
const BEGIN = "BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT txid_current()::text AS transaction";

/**
 * The adapter by itself keeps its pool in a variable of its module, without a listener for errors, so that a connection
 * which breaks while idle ends the process; it takes any connection for each query, so that there are no transactions; it
 * makes its table with keys of 255 characters in the order of some language; and when that first query fails it never works
 * again. Here the connections and the tables (postgres-schema.ts) are ours.
 *
 * Everything rejects with ServiceError `unavailable` when the server cannot do it now, and with its error when it never can.
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
    this.#readers = createPool(url, READERS, logger);
    this.#writers = createPool(url, WRITERS, logger);
    this.#health = createHealth(logger, "PostgreSQL", explainPostgres);
    this.#logger = logger;
    this.query = async (text: string, values: unknown[] = []) =>
      (await this.#query("write", this.#writers, { text, values }, 1)).rows;
  }

  /** Called by the adapter's constructor, before there are fields here, for a query that creates its table: nothing is sent. */
  override async connect(): Promise<(sql: string, values?: unknown) => Promise<unknown[]>> {
    return async () => [];
  }

  /** A statement that may safely run twice. */
  read(statement: QueryConfig): Promise<QueryResult> {
    return this.#query("read", this.#readers, statement, LOST_TRIES);
  }

  /**
   * Runs `work` in a SERIALIZABLE transaction, from the start again after a conflict with another process.
   * @param first a query that travels with the beginning; its first row is given to `work`
   */
  async transaction<T>(work: PostgresWork<T>, first = ""): Promise<T> {
    for (let tries = 1; ; tries++) {
      try {
        const result = await this.#attempt(work, first);
        this.#health.worked("write");
        return result;
      } catch (error) {
        const again = isConflict(error)
          ? tries < CONFLICT_TRIES
          : mayWorkOnAnotherConnection(error) && tries < LOST_TRIES;
        if (!again || error instanceof ServiceError || this.#closed !== null) throw this.#failed("write", error);
        if (isConflict(error)) await sleep(Math.random() * Math.min(2 ** tries, CONFLICT_PAUSE));
      }
    }
  }

  /** Why the database cannot be used now, or null. */
  async problem(): Promise<string | null> {
    if (this.#closed !== null) return "storage is closed";
    const text = "SELECT current_setting('transaction_read_only') AS only";
    const only = await this.#query("read", this.#readers, { text, query_timeout: QUESTION_TIMEOUT }, LOST_TRIES).then(
      ({ rows }) => rows[0]?.only,
      () => undefined,
    );
    const { problem } = this.#health;
    // What failed is tried again: nothing else may come by to find out that it works.
    if (only !== undefined && problem("write") !== null) {
      await this.transaction(async () => undefined).catch(() => undefined);
    }
    return problem("read") ?? problem("write") ?? (only === "on" ? "the database is read-only" : null);
  }

  /** Waits for the queries under way. A second call does nothing more. */
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
      // The connection broke after COMMIT was sent: only the server knows.
      const became = done !== null && isPostgresConnectionLost(error) ? await this.#outcome(transaction) : "aborted";
      if (done !== null && became === "committed") return done.result;
      if (became === "aborted") throw error;
      this.#health.failed("write", error);
      this.#logger.error({ err: error, transaction }, "PostgreSQL: a commit may have happened, its connection broke");
      throw unavailable("storage is unavailable: the connection was lost during the commit, which may have happened");
    }
  }

  async #outcome(transaction: string): Promise<"committed" | "aborted" | "unknown"> {
    const text = "SELECT txid_status($1::bigint) AS status";
    const statement = { text, values: [transaction], query_timeout: QUESTION_TIMEOUT };
    const end = performance.now() + OUTCOME_TIME;
    while (performance.now() < end) {
      const status = await this.#readers.query(statement).then(
        ({ rows }) => rows[0]?.status,
        () => undefined,
      );
      if (status === "committed" || status === "aborted") return status;
      await sleep(OUTCOME_PAUSE);
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
