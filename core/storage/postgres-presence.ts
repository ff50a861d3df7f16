/** Shows by a session-level advisory lock of PostgreSQL that a process has a connection: the lock goes with the connection. */
import { createHash } from "node:crypto";
import type { Pool } from "pg";
import type { Logger } from "pino";
import { messageOf } from "../lib/errors.ts";
import type { Session } from "./postgres-connections.ts";
import type { PostgresDatabase } from "./postgres-database.ts";
import type { Presence } from "./presence.ts";

/** A session that does not answer for so long does not count. */
const ANSWER_TIMEOUT_MS = 2_000;

const LOCK = "SELECT pg_try_advisory_lock($1::bigint) AS held, pg_backend_pid() AS backend";
const LOCKS = `SELECT ((classid::bigint << 32) | objid::bigint)::text AS key FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1
  AND granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`;

interface Shown {
  readonly session: Session;
  readonly name: string;
  readonly backend: unknown;
}

export class PostgresPresence implements Presence {
  readonly #pool: Pool;
  readonly #database: PostgresDatabase;
  readonly #logger: Logger;
  #shown: Shown | null = null;
  #closed: Promise<void> | null = null;
  /** Set where a connection is not one session, as behind PgBouncer in transaction mode. */
  #isUseless = false;

  /** @param pool of one connection, which is made when something is shown for the first time */
  constructor(pool: Pool, database: PostgresDatabase, logger: Logger) {
    this.#pool = pool;
    this.#database = database;
    this.#logger = logger;
  }

  async show(name: string): Promise<boolean> {
    if (this.#isUseless) return false;
    try {
      if (this.#shown !== null && this.#shown.name !== name) this.#end();
      if (this.#shown === null) await this.#begin(name);
      else await this.#check(this.#shown);
    } catch (error) {
      this.#logger.debug({ err: error }, `PostgreSQL: this process has no session to show itself: ${messageOf(error)}`);
      this.#end();
    }
    return this.#shown !== null;
  }

  async shown(names: readonly string[]): Promise<ReadonlySet<string>> {
    const { rows } = await this.#database.read({ name: "penstock-locks", text: LOCKS });
    const held = new Set(rows.map(({ key }) => key));
    return new Set(names.filter((name) => held.has(lockOf(name))));
  }

  /** A second call has no effect. */
  close(): Promise<void> {
    this.#isUseless = true;
    this.#end();
    this.#closed ??= this.#pool.end();
    return this.#closed;
  }

  async #begin(name: string): Promise<void> {
    const session = await this.#database.connections.hold(this.#pool);
    try {
      const { rows } = await session.query({ text: LOCK, values: [lockOf(name)], query_timeout: ANSWER_TIMEOUT_MS });
      const [{ held, backend } = {}] = rows;
      // Its own, of a connection that the server has not seen end yet.
      if (held !== true || this.#isUseless) throw new Error("the lock is held by another session");
      const shown = { session, name, backend };
      session.client.on("end", () => {
        if (this.#shown === shown) this.#end();
      });
      this.#shown = shown;
    } catch (error) {
      session.client.release(true);
      throw error;
    }
  }

  async #check({ session, backend }: Shown): Promise<void> {
    const text = "SELECT pg_backend_pid() AS backend";
    const { rows } = await session.query({ text, query_timeout: ANSWER_TIMEOUT_MS });
    if (rows[0]?.backend === backend) return;
    this.#isUseless = true;
    this.#logger.warn(
      "PostgreSQL: a connection is not one session, as behind PgBouncer in transaction mode: that a process has ended is seen by its heartbeats alone",
    );
    this.#end();
  }

  #end(): void {
    const shown = this.#shown;
    this.#shown = null;
    shown?.session.client.release(true);
  }
}

/** The lock of a name: any number that nobody else comes to. */
const lockOf = (name: string): string =>
  createHash("sha256").update(`penstock process ${name}`).digest().readBigInt64BE().toString();
