/** The store of `postgres://`: one table, one transaction for all commits of a tick. */
import type { Logger } from "pino";
import { messageOf } from "../lib/errors.ts";
import { createBatch } from "./batch.ts";
import { createBoundedReader, type WantedRows } from "./bounded-reader.ts";
import { checkCommit, checkRange, checkTail } from "./check.ts";
import { checkKey } from "./encoding.ts";
import { PostgresDatabase } from "./postgres-database.ts";
import { REVISIONS_PER_BLOCK } from "./postgres-lane.ts";
import { PostgresNotices } from "./postgres-notices.ts";
import { PostgresPresence } from "./postgres-presence.ts";
import { createPostgresReader } from "./postgres-read.ts";
import { preparePostgresSchema } from "./postgres-schema.ts";
import { createPostgresVectors } from "./postgres-vectors.ts";
import { createGroupWriter } from "./postgres-write.ts";
import { scanInSlices } from "./ranges.ts";
import type { Commit, Joined, Range, Row, Store, Tail } from "./store.ts";

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
