/** The store of `postgres://`: one table, one SERIALIZABLE transaction for all commits of a tick. */
import type { Logger } from "pino";
import { messageOf } from "../lib/errors.ts";
import { createBatch } from "./batch.ts";
import { createBoundedReader, type WantedRows } from "./bounded-reader.ts";
import { checkCommit, checkRange, checkTail } from "./check.ts";
import { checkKey } from "./encoding.ts";
import { PostgresDatabase } from "./postgres-database.ts";
import { PostgresNotices } from "./postgres-notices.ts";
import { createPool } from "./postgres-pool.ts";
import { PostgresPresence } from "./postgres-presence.ts";
import { createPostgresReader } from "./postgres-read.ts";
import { preparePostgresSchema, REVISIONS_PER_GROUP } from "./postgres-schema.ts";
import { writeGroup } from "./postgres-write.ts";
import { scanInSlices } from "./ranges.ts";
import type { Commit, Joined, Range, Row, Store, Tail } from "./store.ts";

const MAX_KEYS_PER_QUERY = 1_000;
const MAX_ROWS_PER_QUERY = 4_000;
/** This many characters weigh as much as one row, so that a transaction has at most 8 MiB. */
const CHARACTERS_PER_WEIGHT = 8 * 1024;

/**
 * Connects, and creates the tables where they are missing.
 * @param url `postgres://user:password@host:port/database`
 * @throws Error with a message for the user when there is no connection, or when a newer release has written the database
 */
export async function openPostgresStore(url: string, { logger }: { logger: Logger }): Promise<Store> {
  const database = new PostgresDatabase(url, logger);
  try {
    await preparePostgresSchema(database);
  } catch (error) {
    await database.disconnect();
    throw new Error(`${addressWithoutSecrets(url)} cannot be opened: ${messageOf(error)}`, { cause: error });
  }
  const notices = new PostgresNotices(createPool(url, 1, logger), database, logger);
  const presence = new PostgresPresence(createPool(url, 1, logger), database, logger);
  const commits = createBatch<Commit, number>((group) => writeGroup(database, group), {
    limit: REVISIONS_PER_GROUP,
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
    wake: (topic) => notices.wake(topic),
    watch: (topic, woken) => notices.watch(topic, woken),
    problem: () => database.problem(),
    close: async () => {
      await notices.close();
      await presence.close();
      await Promise.all([commits.idle(), gets.idle(), scans.idle(), tails.idle()]);
      await database.disconnect();
    },
  };
}

/** The URL without user, password and settings. */
function addressWithoutSecrets(url: string): string {
  if (!URL.canParse(url)) return "postgres:";
  const { host, pathname } = new URL(url);
  return `postgres://${host}${pathname}`;
}

/** At least 1, so that a group has no more commits than revisions are reserved for it. */
function commitWeight({ put = [], add = [], delete: removed = [] }: Commit): number {
  let characters = 0;
  for (const [, value] of put) characters += value.length;
  return 1 + put.length + add.length + removed.length + characters / CHARACTERS_PER_WEIGHT;
}
