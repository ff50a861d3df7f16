/** The store of `postgres://`: one table, one transaction for all commits of a tick. */
import { createHash } from "node:crypto";
import type { Pool } from "pg";
import type { Logger } from "pino";
import { messageOf } from "../lib/errors.ts";
import { createBatch } from "./batch.ts";
import {
  createBoundedReader,
  fairShare,
  POSTGRES,
  packRowSql,
  type RowQueries,
  textLimit,
  unpack,
  type WantedRows,
} from "./bounded-reader.ts";
import { checkCommit, checkKey, checkRange, checkTail, keyBounds } from "./keys.ts";
import type { Session } from "./postgres-connections.ts";
import { PostgresDatabase, preparePostgresSchema } from "./postgres-database.ts";
import { REVISIONS_PER_BLOCK } from "./postgres-lane.ts";
import { PostgresNotices } from "./postgres-notices.ts";
import { createPostgresVectors } from "./postgres-vectors.ts";
import { createGroupWriter } from "./postgres-write.ts";
import type { Presence } from "./presence.ts";
import { scanInSlices } from "./ranges.ts";
import type { Commit, Joined, Range, Row, Store, Tail } from "./store.ts";

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

/** Shows by a session-level advisory lock of PostgreSQL that a process has a connection: the lock goes with the connection. */
class PostgresPresence implements Presence {
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

/** @param longest a parameter of the query */
const packedSql = (longest: string) => `string_agg(${packRowSql(POSTGRES, longest)}, chr(30))`;

interface PostgresReader extends RowQueries {
  /** The results in the order of `tails`; null for one with a value that is too long. Together they are at most 32 MiB. */
  tails(tails: readonly Tail[]): Promise<(Joined | null)[]>;
}

type Direction = "ASC" | "DESC";

const directionOf = ({ reverse }: Range): Direction => (reverse ? "DESC" : "ASC");

/** Grouped reads of PostgreSQL. Rows come packed into one text (bounded-reader.ts), which is cheapest for the driver. */
function createPostgresReader(database: PostgresDatabase): PostgresReader {
  const TABLE = database.names.table;

  /** One query for all ranges of one direction. */
  async function scanTogether(direction: Direction, ranges: readonly Range[], longest: number): Promise<Row[][]> {
    if (ranges.length === 0) return [];
    const bounds = ranges.map(keyBounds);
    const { rows } = await database.read({
      name: `penstock-scan-${direction}`,
      text:
        `SELECT (SELECT ${packedSql("$5::int")} FROM (SELECT key, revision, value FROM ${TABLE} WHERE key >= low AND key < high ` +
        `ORDER BY key ${direction} LIMIT wanted OFFSET skipped) AS found) AS packed ` +
        "FROM unnest($1::text[], $2::text[], $3::int[], $4::int[]) WITH ORDINALITY AS range (low, high, wanted, skipped, n) " +
        "ORDER BY n",
      values: [
        bounds.map(({ low }) => low),
        bounds.map(({ high }) => high),
        ranges.map(({ limit }) => limit),
        ranges.map(({ skip = 0 }) => skip),
        longest,
      ],
    });
    return rows.map(({ packed }) => unpack(packed as string | null));
  }

  /** @param rows of all tails that are read at the moment, which share what a query may give */
  async function tailsTogether(tails: readonly Tail[], rows: number): Promise<(Joined | null)[]> {
    const bounds = tails.map(keyBounds);
    const found = await database.read({
      name: "penstock-tail",
      text:
        `SELECT found.first, found.text, found.longest <= most AS fits, other.value, other.revision ` +
        "FROM unnest($1::text[], $2::text[], $3::int[], $4::text[], $5::int[]) " +
        "WITH ORDINALITY AS tail (low, high, wanted, beside, most, n) " +
        "CROSS JOIN LATERAL (SELECT string_agg(value, ',' ORDER BY key) FILTER (WHERE octet_length(value) <= most) AS text, " +
        "max(octet_length(value)) AS longest, CASE WHEN count(*) = wanted THEN min(key) END AS first " +
        `FROM (SELECT key, value FROM ${TABLE} WHERE key >= low AND key < high ORDER BY key DESC LIMIT wanted) AS rows) AS found ` +
        `LEFT JOIN ${TABLE} AS other ON other.key = beside ORDER BY n`,
      values: [
        bounds.map(({ low }) => low),
        bounds.map(({ high }) => high),
        tails.map(({ limit }) => limit),
        tails.map(({ otherKey }) => otherKey),
        tails.map(({ limit, most }) => Math.min(fairShare(rows), Math.floor(textLimit(most) / limit))),
      ],
    });
    return found.rows.map(({ first, text, fits, value, revision }, index) => {
      if (fits === false) return null;
      const { otherKey } = tails[index] as Tail;
      // The driver gives a bigint as text.
      const other = { key: otherKey, value: value as string, revision: Number(revision) };
      return { text: (text ?? "") as string, first: first as string | null, other: value === null ? undefined : other };
    });
  }

  return {
    async rows(keys, longest) {
      const { rows } = await database.read({
        name: "penstock-get",
        text: `SELECT ${packedSql("$2::int")} AS packed FROM ${TABLE} WHERE key = ANY($1::text[])`,
        values: [keys, longest],
      });
      return new Map(unpack((rows[0]?.packed ?? null) as string | null).map((row) => [row.key, row]));
    },

    async ranges(ranges, longest) {
      const of = (direction: Direction) => ranges.filter((range) => directionOf(range) === direction);
      const [up, down] = await Promise.all([
        scanTogether("ASC", of("ASC"), longest),
        scanTogether("DESC", of("DESC"), longest),
      ]);
      const results = { ASC: up.values(), DESC: down.values() };
      return ranges.map((range) => results[directionOf(range)].next().value ?? []);
    },

    async tails(tails) {
      const rows = tails.reduce((sum, { limit }) => sum + limit, 0);
      const results = await tailsTogether(tails, rows);
      for (const [index, tail] of tails.entries()) {
        // Alone it may have longer values.
        if (results[index] === null && rows > tail.limit)
          results[index] = (await tailsTogether([tail], tail.limit))[0] ?? null;
      }
      return results;
    },
  };
}

const MAX_KEYS_PER_QUERY = 1_000;
const MAX_ROWS_PER_QUERY = 4_000;
/** This many characters weigh as much as one row, so that a transaction has at most 8 MiB. */
const CHARACTERS_PER_WEIGHT = 8 * 1024;

/**
 * Connects, and creates the tables where they are missing.
 * @param url `postgres://user:password@host:port/database`
 * @param options `indexedFrom`: so many vectors are searched by an index
 * @throws Error with a message for the user when there is no connection, or when a newer release has written the database
 */
export async function openPostgresStore(
  url: string,
  options: { readonly logger: Logger; readonly indexedFrom?: number },
): Promise<Store> {
  const { logger } = options;
  const { database, commitFunction } = await connect(url, logger);
  const notices = new PostgresNotices(database.connections.createPool(1), database, logger);
  const presence = new PostgresPresence(database.connections.createPool(1), database, logger);
  const vectors = createPostgresVectors(database, options);
  const commits = createBatch<Commit, number>(createGroupWriter(database, commitFunction), {
    limit: REVISIONS_PER_BLOCK,
    weigh: commitWeight,
  });
  const queries = createPostgresReader(database);
  const reader = createBoundedReader(queries);
  const gets = createBatch<WantedRows, (Row | undefined)[]>((lists) => reader.lists(lists), {
    limit: MAX_KEYS_PER_QUERY,
    weigh: ({ keys }) => keys.length,
  });
  const scans = createBatch<Range, Row[]>((ranges) => reader.ranges(ranges), {
    limit: MAX_ROWS_PER_QUERY,
    weigh: (range) => range.limit,
  });
  const tails = createBatch<Tail, Joined | null>((asked) => queries.tails(asked), {
    limit: MAX_ROWS_PER_QUERY,
    weigh: ({ limit }) => 4 + limit,
  });
  let closed: Promise<void> | null = null;
  async function close(): Promise<void> {
    await notices.close();
    await presence.close();
    await vectors.close();
    await Promise.all([commits.idle(), gets.idle(), scans.idle(), tails.idle()]);
    await database.disconnect();
  }
  return {
    kind: "postgres",
    get: async (key) => {
      checkKey(key);
      return (await gets({ keys: [key], longest: undefined }))[0];
    },
    getMany: async (keys, longest) => {
      for (const key of keys) checkKey(key);
      return keys.length === 0 ? [] : gets({ keys, longest });
    },
    scan: async (range) => {
      checkRange(range);
      return range.limit === 0 ? [] : scanInSlices(scans, range);
    },
    tail: async (tail) => {
      checkTail(tail);
      return tails(tail);
    },
    commit: async (commit) => {
      checkCommit(commit);
      return commits(commit);
    },
    presence,
    vectors: (rows) => vectors.open(rows),
    wake: (topic) => notices.wake(topic),
    watch: (topic, woken) => notices.watch(topic, woken),
    watched: (topic, listener) => notices.watched(topic, listener),
    problem: async () => (await database.problem()) ?? waiting(commits.oldest()),
    close: () => (closed ??= close()),
  };
}

async function connect(url: string, logger: Logger) {
  let database: PostgresDatabase | undefined;
  try {
    database = new PostgresDatabase(url, logger);
    await database.examine();
    const commitFunction = await preparePostgresSchema(database, logger);
    await database.connections.settle(database.names.holder);
    return { database, commitFunction };
  } catch (error) {
    await database?.disconnect();
    throw new Error(`${addressWithoutSecrets(url)} cannot be opened: ${messageOf(error)}`, { cause: error });
  }
}

/** The URL without user, password and settings. */
const addressWithoutSecrets = (url: string): string =>
  `postgres://${/^\w+:\/\/(?:[^/?#]*@)?([^?#]*)/.exec(url)?.[1] ?? ""}`;

/** Who waits for so long has no use for a process that takes further requests. */
const LONGEST_WAIT_MS = 5_000;

const waiting = (milliseconds: number): string | null =>
  milliseconds < LONGEST_WAIT_MS ? null : `a commit has waited for ${Math.floor(milliseconds / 1000)} s`;

/** At least 1, so that a group has no more commits than revisions are reserved for it. */
function commitWeight({ put = [], add = [], delete: removed = [] }: Commit): number {
  let characters = 0;
  for (const [, value] of put) characters += value.length;
  return 1 + put.length + add.length + removed.length + characters / CHARACTERS_PER_WEIGHT;
}
