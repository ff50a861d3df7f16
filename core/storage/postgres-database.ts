/** Keyv's adapter for PostgreSQL with pools of its own, and recovery when the server comes back. */
import { setTimeout as sleep } from "node:timers/promises";
import { KeyvPostgres } from "@keyv/postgres";
import type { Pool, PoolClient, QueryConfig, QueryResult } from "pg";
import type { Logger } from "pino";
import { ServiceError, unavailable } from "../lib/errors.ts";
import { createHealth, type Health, type Side } from "./health.ts";
import {
  explainPostgres,
  isConflict,
  isRefusedSetting,
  isStatementError,
  mayWorkOnAnotherConnection,
} from "./postgres-errors.ts";
import { checkLayout, LayoutError } from "./postgres-layout.ts";
import { META, type PostgresNames, postgresNames } from "./postgres-names.ts";
import { createPool } from "./postgres-pool.ts";
import { Session } from "./postgres-session.ts";
import { type PostgresSettings, parsePostgresUrl } from "./postgres-settings.ts";

/** One transaction writes at a time; the other connection is for the case that the first one hangs. */
const WRITE_CONNECTIONS = 2;
const MAX_CONFLICT_TRIES = 12;
const MAX_CONFLICT_PAUSE_MS = 100;
/** When the server has closed all connections, several of the pool may fail one after the other. */
const MAX_LOST_CONNECTION_TRIES = 4;
/** For short queries on which a caller waits that has more to do. */
const SHORT_QUERY_TIMEOUT_MS = 2_000;

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
  readonly names: PostgresNames;
  readonly #settings: PostgresSettings;
  readonly #health: Health;
  readonly #logger: Logger;
  /** Connections whose transactions are READ COMMITTED, whatever the default. */
  readonly #prepared = new WeakSet<PoolClient>();
  #readers: Pool;
  #writers: Pool;
  /** Whether connections are those of the server itself, which keep what a session prepares. */
  #direct = true;
  /** Whether the server is told the bounds of sessions. */
  #bounded = true;
  /** A newer release has changed the layout: its rows are neither read nor written. */
  #newer: LayoutError | null = null;
  #closed: Promise<void> | null = null;

  /** @param url `postgres://user:password@host:port/database`. Nothing is connected before the first query. */
  constructor(url: string, logger: Logger) {
    const settings = parsePostgresUrl(url);
    const names = postgresNames(settings.schema);
    super({ uri: settings.url, table: META, schema: names.schema });
    this.names = names;
    this.#settings = settings;
    this.#logger = logger;
    this.#health = createHealth(logger, "PostgreSQL", explainPostgres);
    [this.#readers, this.#writers] = this.#createPools();
    this.query = async (text: string, values: unknown[] = []) =>
      (await this.#query("write", this.#writers, { text, values }, 1)).rows;
  }

  /** The adapter's constructor calls this to create its table, before this class has fields: it must send nothing. */
  override async connect(): Promise<(sql: string, values?: unknown) => Promise<unknown[]>> {
    return async () => [];
  }

  /**
   * Finds out what is between this process and the server. A pooler (PgBouncer) lends a connection for one transaction: what a session
   * sets or prepares is then somebody else's, and the bounds of sessions are refused unless it is told to ignore them.
   */
  async examine(): Promise<void> {
    try {
      this.#direct = await this.#isDirect().catch(async (error: unknown) => {
        if (!isRefusedSetting(error)) throw error;
        await Promise.all([this.#readers.end(), this.#writers.end()]);
        this.#bounded = false;
        [this.#readers, this.#writers] = this.#createPools();
        this.#logger.warn(
          "PostgreSQL: the pooler refuses the bounds of sessions, set statement_timeout, lock_timeout and idle_in_transaction_session_timeout at the role",
        );
        return this.#isDirect();
      });
    } catch (error) {
      throw this.#failed("write", error);
    }
  }

  /** A pooler does not give the number of the server's process. */
  async #isDirect(): Promise<boolean> {
    const client = await this.#readers.connect();
    const session = new Session(client, false);
    try {
      const { rows } = await session.query({ text: "SELECT pg_backend_pid() AS process" });
      return rows[0]?.process === client.processID;
    } finally {
      session.release();
    }
  }

  /** Further connections like those of its own. */
  createPool(max: number): Pool {
    return createPool(this.#settings.url, max, this.#bounded, this.#logger);
  }

  #createPools(): [Pool, Pool] {
    return [this.createPool(this.#settings.pool - WRITE_CONNECTIONS), this.createPool(WRITE_CONNECTIONS)];
  }

  /** A statement that may safely run twice. */
  async read(statement: QueryConfig): Promise<QueryResult> {
    if (this.#newer !== null) throw this.#failed("read", this.#newer);
    return this.#query("read", this.#readers, statement, MAX_LOST_CONNECTION_TRIES);
  }

  /** A statement that only reads, under settings of its own. It may safely run twice. */
  async readWith(settings: readonly string[], statement: QueryConfig): Promise<QueryResult> {
    if (this.#newer !== null) throw this.#failed("read", this.#newer);
    return this.#again("read", MAX_LOST_CONNECTION_TRIES, () =>
      this.use(this.#readers, async (session) => {
        let result: QueryResult | undefined;
        await session.transaction(settings, async () => {
          result = await session.query(statement);
          return true;
        });
        return result as QueryResult;
      }),
    );
  }

  /** Runs `work` on a connection of a pool, which `createPool` has made. */
  async use<T>(pool: Pool, work: (session: Session) => Promise<T>): Promise<T> {
    const session = new Session(await pool.connect(), this.#direct);
    return work(session).finally(() => session.release());
  }

  /** Runs `work`, and again after a conflict with another process, or on another connection. What it throws must not have happened. */
  async write<T>(work: (session: Session) => Promise<T>): Promise<T> {
    for (let tries = 1; ; tries++) {
      try {
        const session = await this.#beginWriting();
        const result = await work(session).finally(() => session.release());
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

  /** The commit in one statement is as strict as it must be under READ COMMITTED alone, and the default may change while this runs. */
  async #beginWriting(): Promise<Session> {
    const client = await this.#writers.connect();
    const session = new Session(client, this.#direct);
    if (!this.#direct || this.#prepared.has(client)) return session;
    try {
      await session.query({ text: "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED" });
    } catch (error) {
      session.release();
      throw error;
    }
    this.#prepared.add(client);
    return session;
  }

  /** A statement on a connection of its own, tried once for a short time. Undefined when there is no answer. */
  async ask(statement: QueryConfig): Promise<Record<string, unknown>[] | undefined> {
    try {
      const session = new Session(await this.#writers.connect(), false);
      const asked = session.query({ ...statement, query_timeout: SHORT_QUERY_TIMEOUT_MS });
      return (await asked.finally(() => session.release())).rows;
    } catch {
      return undefined;
    }
  }

  /** The error for a commit of which nobody knows whether it happened. */
  uncertain(cause: unknown): ServiceError {
    this.#health.failed("write", cause);
    this.#logger.error({ err: cause }, "PostgreSQL: a commit may have happened, its connection broke");
    return unavailable("storage is unavailable: the connection was lost during the commit, which may have happened");
  }

  /** Why the database cannot be used now, or null. */
  async problem(): Promise<string | null> {
    if (this.#closed !== null) return "storage is closed";
    const { meta } = this.names;
    const text = `SELECT current_setting('transaction_read_only') AS only, (SELECT value FROM ${meta} WHERE key = 'schema') AS layout`;
    const statement = { text, query_timeout: SHORT_QUERY_TIMEOUT_MS };
    const found = await this.#query("read", this.#readers, statement, MAX_LOST_CONNECTION_TRIES).then(
      ({ rows }) => rows[0],
      () => undefined,
    );
    const { problem } = this.#health;
    if (found !== undefined) {
      this.#newer = checkLayout(found.layout);
      if (this.#newer !== null) return explainPostgres(this.#newer);
      // After a failure a write is tried here, since there may be no other write to show that it works again.
      if (problem("write") !== null) {
        const touch = { text: `UPDATE ${meta} SET value = value WHERE key = 'schema'` };
        await this.write((session) => session.query(touch)).catch(() => undefined);
      }
    }
    return problem("read") ?? problem("write") ?? (found?.only === "on" ? "the database is read-only" : null);
  }

  /** Waits for the running queries. A second call has no effect. */
  override disconnect(): Promise<void> {
    this.#closed ??= Promise.all([this.#readers.end(), this.#writers.end()]).then(() => undefined);
    return this.#closed;
  }

  async #query(side: Side, pool: Pool, statement: QueryConfig, tries: number): Promise<QueryResult> {
    const { name: _, ...unnamed } = statement;
    return this.#again(side, tries, () => pool.query(this.#direct ? statement : unnamed));
  }

  async #again(side: Side, tries: number, work: () => Promise<QueryResult>): Promise<QueryResult> {
    for (let attempt = 1; ; attempt++) {
      try {
        const result = await work();
        this.#health.worked(side);
        return result;
      } catch (error) {
        if (attempt >= tries || !mayWorkOnAnotherConnection(error)) throw this.#failed(side, error);
      }
    }
  }

  #failed(side: Side, error: unknown): unknown {
    if (error instanceof ServiceError || isStatementError(error)) return error;
    if (error instanceof LayoutError) this.#newer = error;
    return this.#closed === null ? this.#health.failed(side, error) : unavailable("storage is closed");
  }
}
