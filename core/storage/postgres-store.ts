/** The store of `postgres://`: one table, one SERIALIZABLE transaction for all commits of a tick. */
import type { Logger } from "pino";
import { messageOf } from "../lib/errors.ts";
import { createBatch } from "./batch.ts";
import { checkCommit, checkRange, checkTail } from "./check.ts";
import { checkKey } from "./encoding.ts";
import { PostgresDatabase } from "./postgres-database.ts";
import { createPostgresReader } from "./postgres-read.ts";
import { preparePostgresSchema, REVISIONS_PER_GROUP } from "./postgres-schema.ts";
import { writeGroup } from "./postgres-write.ts";
import type { Commit, Joined, Range, Row, Store, Tail } from "./store.ts";

/** What one query asks for, at most: keys, and rows of ranges. */
const GETS = 1_000;
const SCANS = 4_000;
/** Characters that weigh as much as a row: a transaction carries 8 MiB at most. */
const WEIGHT_1 = 8 * 1024;

/**
 * Connects, and creates the tables where they are missing.
 * @param url `postgres://user:password@host:port/database`
 * @throws Error for a person when there is no connection, or when a newer release has written the database
 */
export async function openPostgresStore(url: string, { logger }: { logger: Logger }): Promise<Store> {
  const database = new PostgresDatabase(url, logger);
  try {
    await preparePostgresSchema(database);
  } catch (error) {
    await database.disconnect();
    throw new Error(`${placeOf(url)} cannot be opened: ${messageOf(error)}`, { cause: error });
  }
  const commits = createBatch<Commit, number>((group) => writeGroup(database, group), {
    limit: REVISIONS_PER_GROUP,
    weigh: weightOf,
  });
  const reader = createPostgresReader(database);
  const gets = createBatch<readonly string[], (Row | undefined)[]>(
    async (lists) => {
      const rows = await reader.rows([...new Set(lists.flat())]);
      return lists.map((keys) => keys.map((key) => rows.get(key)));
    },
    { limit: GETS, weigh: (keys) => keys.length },
  );
  const scans = createBatch<Range, Row[]>((ranges) => reader.ranges(ranges), {
    limit: SCANS,
    weigh: (range) => range.limit,
  });
  const tails = createBatch<Tail, Joined | null>((asked) => reader.tails(asked), {
    limit: SCANS,
    weigh: ({ limit }) => 4 + limit,
  });
  return {
    kind: "postgres",
    get: async (key) => {
      checkKey(key);
      return (await gets([key]))[0];
    },
    getMany: async (keys) => {
      for (const key of keys) checkKey(key);
      return keys.length === 0 ? [] : gets(keys);
    },
    scan: async (range) => {
      checkRange(range);
      return range.limit === 0 ? [] : scans(range);
    },
    tail: async (tail) => {
      checkTail(tail);
      return tails(tail);
    },
    commit: async (commit) => {
      checkCommit(commit);
      return commits(commit);
    },
    problem: () => database.problem(),
    close: async () => {
      await Promise.all([commits.idle(), gets.idle(), scans.idle(), tails.idle()]);
      await database.disconnect();
    },
  };
}

/** Without the user, the password and the settings. */
function placeOf(url: string): string {
  if (!URL.canParse(url)) return "postgres:";
  const { host, pathname } = new URL(url);
  return `postgres://${host}${pathname}`;
}

/** How much of a transaction it takes: at least 1, for a group has no more commits than there are revisions for it. */
function weightOf({ put = [], add = [], delete: removed = [] }: Commit): number {
  let characters = 0;
  for (const [, value] of put) characters += value.length;
  return 1 + put.length + add.length + removed.length + characters / WEIGHT_1;
}
