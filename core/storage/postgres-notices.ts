/** The connection on which a process hears the notices of the others and sends its own: LISTEN and NOTIFY. */
import { setTimeout as sleep } from "node:timers/promises";
import type { Pool, PoolClient } from "pg";
import type { Logger } from "pino";
import { messageOf } from "../lib/errors.ts";
import { Interval } from "../lib/interval.ts";
import type { PostgresDatabase } from "./postgres-database.ts";
import { isStatementError } from "./postgres-errors.ts";
import { ANNOUNCEMENT_INTERVAL_MS, WakeTopics } from "./wake-topics.ts";

const CHANNEL = "penstock";
const NOTIFY = "SELECT pg_notify($1, $2)";
/** A connection that does not answer for so long is given up. */
const ANSWER_TIMEOUT_MS = 5_000;
const RECONNECT_PAUSE_MS = 1_000;

/** LISTEN has no effect here. */
class Deaf extends Error {}

interface Connection {
  readonly client: PoolClient;
  /** Gives it up. */
  lose(error: unknown): void;
}

/**
 * Wake-ups by NOTIFY. It is never part of a commit: with it a transaction takes a lock that all such commits share. While the connection
 * is away, or where LISTEN does not work, nothing is heard, and everybody polls.
 */
export class PostgresNotices {
  readonly #pool: Pool;
  readonly #database: PostgresDatabase;
  readonly #logger: Logger;
  readonly #topics = new WakeTopics((notice) => this.#send(notice));
  readonly #announcements = new Interval(
    ANNOUNCEMENT_INTERVAL_MS,
    async () => this.#topics.announce(),
    () => undefined,
  );
  readonly #closing = new AbortController();
  #connection: Connection | null = null;
  #running: Promise<void> | null = null;
  #heard: (notice: string) => void = () => {};

  /** @param pool of one connection, for this alone. It is made with the first `watch` */
  constructor(pool: Pool, database: PostgresDatabase, logger: Logger) {
    this.#pool = pool;
    this.#database = database;
    this.#logger = logger;
  }

  wake(topic: string): void {
    this.#topics.wake(topic);
  }

  watch(topic: string, woken: () => void): () => void {
    this.#running ??= this.#run();
    return this.#topics.watch(topic, woken);
  }

  /** As `Store.watched`: where nothing is heard, others may watch anything. */
  watched(topic: string, listener: () => void): () => void {
    if (this.#connection === null) listener();
    return this.#topics.watched(topic, listener);
  }

  async close(): Promise<void> {
    await this.#announcements.stop();
    await this.#topics.close();
    this.#closing.abort();
    await this.#running;
    await this.#pool.end();
  }

  /** Keeps a connection until it is closed, or until it shows that LISTEN does not work. */
  async #run(): Promise<void> {
    const { signal } = this.#closing;
    this.#announcements.start();
    while (!signal.aborted) {
      try {
        await this.#listen();
      } catch (error) {
        if (error instanceof Deaf || isStatementError(error)) {
          this.#logger.warn(
            "PostgreSQL: LISTEN does not work on this connection, as behind PgBouncer in transaction mode: changes of other processes are found by polling",
          );
          return;
        }
        this.#logger.debug({ err: error }, `PostgreSQL: notices of other processes are not heard: ${messageOf(error)}`);
      }
      await sleep(RECONNECT_PAUSE_MS, undefined, { signal, ref: false }).catch(() => {});
    }
  }

  /** Resolves when it is closed, rejects when the connection ends or does not answer. */
  async #listen(): Promise<void> {
    const { signal } = this.#closing;
    const client = await this.#pool.connect();
    let stop = () => {};
    try {
      await new Promise<void>((resolve, reject) => {
        stop = resolve;
        // It may have been closed while the connection was made.
        if (signal.aborted) return resolve();
        signal.addEventListener("abort", stop);
        client.on("error", reject);
        client.on("end", () => reject(new Error("the connection has ended")));
        client.on("notification", ({ payload = "" }: { payload?: string }) => this.#heard(payload));
        this.#prove(client).then(() => this.#begin({ client, lose: reject }), reject);
      });
    } finally {
      signal.removeEventListener("abort", stop);
      this.#connection = null;
      client.release(true);
    }
  }

  #begin(connection: Connection): void {
    if (this.#closing.signal.aborted) return;
    this.#heard = (notice) => this.#topics.heard(notice);
    this.#connection = connection;
    this.#topics.announce(true);
    // What was told while nobody listened is found by looking.
    this.#topics.wakeAllOwn();
  }

  /**
   * Begins to listen, and makes sure that it does: a notice from another connection is heard before the next answer here. Behind a
   * pooler each statement may have a connection of its own.
   */
  async #prove(client: PoolClient): Promise<void> {
    const proof = `proof ${this.#topics.name} ${Math.random()}`;
    let proved = false;
    this.#heard = (notice) => {
      proved ||= notice === proof;
    };
    await client.query({ text: `LISTEN ${CHANNEL}`, query_timeout: ANSWER_TIMEOUT_MS });
    await this.#database.read({ text: NOTIFY, values: [CHANNEL, proof], query_timeout: ANSWER_TIMEOUT_MS });
    await client.query({ text: "SELECT 1", query_timeout: ANSWER_TIMEOUT_MS });
    if (!proved) throw new Deaf("a notice was not heard");
  }

  async #send(notice: string): Promise<void> {
    const connection = this.#connection;
    if (connection === null) return;
    const statement = { name: "penstock-notify", text: NOTIFY, values: [CHANNEL, notice] };
    await connection.client.query({ ...statement, query_timeout: ANSWER_TIMEOUT_MS }).catch(connection.lose);
  }
}
