/** Keyv's adapter for PostgreSQL with pools of its own, and recovery when the server comes back. */
import { setTimeout as sleep } from "node:timers/promises";
import { KeyvPostgres } from "@keyv/postgres";
import type { Pool, QueryConfig, QueryResult } from "pg";
import type { Logger } from "pino";
import { ServiceError, unavailable } from "../lib/errors.ts";
import { createHealth, type Health, type Side } from "./health.ts";
import { LAYOUT_VERSION, type LayoutStep, pendingSteps, type StoreLayout } from "./layout.ts";
import { commitFunction, commitSignature, createCommitFunction } from "./postgres-commit-sql.ts";
import { PostgresConnections, type Session, SHORT_QUERY_TIMEOUT_MS } from "./postgres-connections.ts";
import {
  checkLayout,
  explainPostgres,
  isConflict,
  isStatementError,
  mayWorkOnAnotherConnection,
  readOnly,
  Unfit,
} from "./postgres-errors.ts";
import { NO_REVISIONS } from "./postgres-lane.ts";
import { META, type PostgresNames, postgresNames } from "./postgres-names.ts";
import { parsePostgresUrl } from "./postgres-settings.ts";

/** One transaction writes at a time; the other connection is for the case that the first one hangs. */
const WRITE_CONNECTIONS = 2;
const MAX_CONFLICT_TRIES = 12;
const MAX_CONFLICT_PAUSE_MS = 100;
/** When the server has closed all connections, several of the pool may fail one after the other. */
const MAX_LOST_CONNECTION_TRIES = 4;

/**
 * The original adapter has four problems. Its pool has no listener for errors, so that an idle connection that breaks ends the process.
 * It takes any connection for each query, so that there are no transactions. It creates its table with keys of 255 characters, sorted
 * by some language. And when its first query fails, it never works again. Here the connections and the tables are
 * our own.
 *
 * All methods reject with ServiceError `unavailable` while the server cannot work, and with the server's error when the statement is
 * wrong.
 */
export class PostgresDatabase extends KeyvPostgres {
  readonly names: PostgresNames;
  readonly connections: PostgresConnections;
  readonly #health: Health;
  readonly #logger: Logger;
  readonly #readers: Pool;
  readonly #writers: Pool;
  /** A newer release has changed the layout: its rows are neither read nor written. */
  #newer: Unfit | null = null;
  #closed: Promise<void> | null = null;

  /** @param url `postgres://user:password@host:port/database`. Nothing is connected before the first query. */
  constructor(url: string, logger: Logger) {
    const settings = parsePostgresUrl(url);
    const names = postgresNames(settings.schema);
    super({ uri: settings.urls[0]!, table: META, schema: names.schema });
    this.names = names;
    this.#logger = logger;
    this.#health = createHealth(logger, "PostgreSQL", explainPostgres);
    this.connections = new PostgresConnections(settings, logger);
    this.#readers = this.connections.createPool(settings.pool - WRITE_CONNECTIONS);
    this.#writers = this.connections.createPool(WRITE_CONNECTIONS);
    this.query = async (text: string, values: unknown[] = []) => {
      const { rows } = await this.#again("write", 1, () =>
        this.use(this.#writers, (session) => session.query({ text, values })),
      );
      return rows;
    };
  }

  /** The adapter's constructor calls this to create its table, before this class has fields: it must send nothing. */
  override async connect(): Promise<(sql: string, values?: unknown) => Promise<unknown[]>> {
    return async () => [];
  }

  /** Finds a server, and out what it is and what is before it. */
  async examine(): Promise<void> {
    await this.connections.enter().catch((error) => {
      throw this.#failed("write", error);
    });
  }

  /** A statement that may safely run twice. @param settings of the transaction, where it needs some of its own */
  async read(statement: QueryConfig, settings?: readonly string[]): Promise<QueryResult> {
    if (this.#newer !== null) throw this.#failed("read", this.#newer);
    return this.#again("read", MAX_LOST_CONNECTION_TRIES, () =>
      this.use(this.#readers, async (session) => {
        if (settings === undefined) return session.query(statement);
        let result: QueryResult;
        await session.transaction(settings, async () => {
          result = await session.query(statement);
          return true;
        });
        return result!;
      }),
    );
  }

  /** Runs `work` on a connection of a pool, which `createPool` has made. */
  async use<T>(pool: Pool, work: (session: Session) => Promise<T>): Promise<T> {
    const session = await this.connections.session(pool);
    return work(session).finally(() => session.release());
  }

  /** Runs `work`, and again after a conflict with another process, or on another connection. What it throws must not have happened. */
  async write<T>(work: (session: Session) => Promise<T>): Promise<T> {
    for (let tries = 1; ; tries++) {
      try {
        const result = await this.use(this.#writers, async (session) => {
          if (session.generation.server.readOnly) throw readOnly();
          return work(session);
        });
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

  /** A statement on a connection of its own, tried once for a short time. Undefined when there is no answer. */
  async ask(statement: QueryConfig): Promise<Record<string, unknown>[] | undefined> {
    try {
      const short = { ...statement, query_timeout: SHORT_QUERY_TIMEOUT_MS };
      return (await this.use(this.#writers, (session) => session.query(short))).rows;
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
    const { problem } = this.#health;
    // When nothing answers in time, other connections may.
    const found = (await this.#look()) ?? (await this.#look());
    if (found !== undefined) {
      this.#newer = checkLayout(found.layout);
      if (this.#newer !== null) return explainPostgres(this.#newer);
      // After a failure a write is tried here, since there may be no other write to show that it works again.
      if (problem("write") !== null) {
        const touch = { text: `UPDATE ${meta} SET value = value WHERE key = 'schema'` };
        await this.write((session) => session.query(touch)).catch(() => undefined);
      }
    }
    return problem("read") ?? problem("write") ?? (found?.readOnly === true ? "the database is read-only" : null);
  }

  /** Whether the connections of both sides lead to the server to which they should. Behind a pooler they may do otherwise at any time. */
  async #look(): Promise<Record<string, unknown> | undefined> {
    const layout = `SELECT value AS layout FROM ${this.names.meta} WHERE key = 'schema'`;
    const look = (pool: Pool) =>
      this.#again("read", MAX_LOST_CONNECTION_TRIES, () => this.connections.look(pool, layout));
    const sides = this.connections.server?.direct === false ? [this.#readers, this.#writers] : [this.#readers];
    return Promise.all(sides.map(look)).then(
      ([found]) => found,
      () => undefined,
    );
  }

  /** Waits for the running queries. A second call has no effect. */
  override disconnect(): Promise<void> {
    this.#closed ??= Promise.all([this.#readers.end(), this.#writers.end()]).then(() => undefined);
    return this.#closed;
  }

  async #again<T>(side: Side, tries: number, work: () => Promise<T>): Promise<T> {
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
    if (error instanceof Unfit) this.#newer = error;
    return this.#closed === null ? this.#health.failed(side, error) : unavailable("storage is closed");
  }
}

// Creates the tables and the function, and checks that this release can read and write their version.

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
