/** The store of `sqlite:FILE`: one connection writes groups of commits, another reads; both are Keyv's adapter. */
import { mkdir } from "node:fs/promises";
import { dirname } from "node:path";
import type { Logger } from "pino";
import { messageOf, unavailable } from "../lib/errors.ts";
import { createBatch } from "./batch.ts";
import { checkCommit, checkRange, checkTail } from "./check.ts";
import { checkKey } from "./encoding.ts";
import { createHealth, type Side } from "./health.ts";
import { openSqliteConnection, type SqliteConnection } from "./sqlite-connection.ts";
import { explainSqlite } from "./sqlite-failure.ts";
import { lockFile } from "./sqlite-lock.ts";
import { createPresence } from "./sqlite-presence.ts";
import { createSqliteReader } from "./sqlite-read.ts";
import { createRevisions, prepareSqliteSchema } from "./sqlite-schema.ts";
import { readTails } from "./sqlite-tail.ts";
import { createSqliteWriter } from "./sqlite-write.ts";
import type { Commit, Joined, Range, Row, Store, Tail } from "./store.ts";

export interface SqliteOptions {
  /** Absolute path; its folder is made. */
  file: string;
  /** What messages call it; default `sqlite:FILE`. */
  where?: string;
  /** `normal`: a loss of power may take the newest commits, a crash of the process none. Default `full`. */
  synchronous?: "full" | "normal";
  logger: Logger;
  /** Pages of 4 KiB that the file may grow to; default: no bound but the disk. */
  maxPages?: number;
  /** Milliseconds to wait for a lock of another process, such as a backup; default 2,000. */
  busyTimeout?: number;
}

/** Characters of values in one transaction: no group keeps the next one waiting long. */
const GROUP = 8 * 1024 * 1024;
/** Rows of one query: more would be garbage faster than it is used, for rows that wait for each other do not die young. */
const ROWS = 1_600;

/** Characters of the tails of one query, as far as can be told before: many share the cost of a query. */
const TAILS = 8 * 1024 * 1024;

const BUSY_TIMEOUT = 2_000;

/** Pages of 4 KiB in the log before they go to their places: a page that changes many times goes there once. */
const LOG = 8_000;

/** KiB of page cache of each connection. */
const CACHE = 32 * 1024;

/** @throws Error for a person when the file cannot be used: locked by another process, of a newer version, not to be written */
export async function openSqliteStore(options: SqliteOptions): Promise<Store> {
  const { file, where = `sqlite:${file}`, synchronous = "full", logger } = options;
  await mkdir(dirname(file), { recursive: true }).catch((error) => {
    throw new Error(`${where} cannot be opened: its folder cannot be made (${messageOf(error)})`, { cause: error });
  });
  const unlock = await lockFile(file, where);
  const { busyTimeout = BUSY_TIMEOUT } = options;
  // A statement that writes many rows journals them to be able to take them back: in memory, not in a file.
  const pragmas = [`cache_size = -${CACHE}`, `synchronous = ${synchronous}`, "temp_store = MEMORY"];
  const opened: { close(): Promise<void> }[] = [];
  const closeAll = async (): Promise<void> => {
    for (const connection of opened.reverse()) await connection.close();
    await unlock();
  };

  try {
    const growth = options.maxPages === undefined ? [] : [`max_page_count = ${options.maxPages}`];
    const writing = await openSqliteConnection({
      file,
      busyTimeout,
      pragmas: ["journal_mode = WAL", `wal_autocheckpoint = ${LOG}`, ...pragmas, ...growth],
    });
    opened.push(writing);
    await prepareSqliteSchema(writing, where);
    const reading = await openSqliteConnection({ file, busyTimeout, pragmas: [...pragmas, "query_only = true"] });
    opened.push(reading);
    return assemble(writing, reading, await createPresence(file));
  } catch (error) {
    await closeAll().catch(() => {});
    if (!/^SQLITE_/.test(String((error as { code?: unknown }).code))) throw error;
    throw new Error(`${where} cannot be opened: ${explainSqlite(error)} (${messageOf(error)})`, { cause: error });
  }

  function assemble(
    writing: SqliteConnection,
    reading: SqliteConnection,
    present: Awaited<ReturnType<typeof createPresence>>,
  ): Store {
    const writer = createSqliteWriter(writing, createRevisions(writing));
    const reader = createSqliteReader(reading);
    const health = createHealth(logger, where, explainSqlite);
    let closed = false;

    async function watched<T>(side: Side, work: () => Promise<T>): Promise<T> {
      try {
        const result = await work();
        health.worked(side);
        return result;
      } catch (error) {
        throw health.failed(side, error);
      }
    }

    const commits = createBatch<Commit, number>(
      (group) => watched("write", () => present().then(() => writer.write(group))),
      {
        limit: GROUP,
        weigh: weightOf,
      },
    );
    const gets = createBatch<readonly string[], (Row | undefined)[]>(
      (lists) =>
        watched("read", async () => {
          const rows = await reader.rows(lists.flat());
          return lists.map((keys) => keys.map((key) => rows.get(key)));
        }),
      { limit: ROWS, weigh: (keys) => keys.length },
    );
    const scans = createBatch<Range, Row[]>((ranges) => watched("read", () => reader.ranges(ranges)), {
      limit: ROWS,
      weigh: ({ limit, skip = 0 }) => 4 + limit + skip,
    });
    /** Characters of a value, as large as they were lately. */
    let size = 512;
    const tails = createBatch<Tail, Joined | null>(
      async (asked) => {
        const found = await watched("read", () => readTails(reading, asked));
        size = Math.max(largest(asked, found), size * 0.95, 512);
        return found;
      },
      { limit: TAILS, weigh: ({ limit }) => limit * size },
    );

    const open = (): void => {
      if (closed) throw unavailable("storage is unavailable: it is closed");
    };

    return {
      kind: "sqlite",
      async get(key) {
        open();
        checkKey(key);
        return (await gets([key]))[0];
      },
      async getMany(keys) {
        open();
        keys.forEach(checkKey);
        return keys.length === 0 ? [] : gets(keys);
      },
      async scan(range) {
        open();
        checkRange(range);
        return scans(range);
      },
      async tail(tail) {
        open();
        checkTail(tail);
        return tails(tail);
      },
      async commit(commit) {
        open();
        checkCommit(commit);
        return commits(commit);
      },
      async problem() {
        if (closed) return "it is closed";
        // What failed is tried again: nothing else may come by to find out that it works.
        if (health.problem("write") === null) await present(true).catch((error) => void health.failed("write", error));
        else await watched("write", () => present(true).then(writer.probe)).catch(() => {});
        await watched("read", () => reading.query("SELECT 1 FROM rows LIMIT 1")).catch(() => {});
        return health.problem("write") ?? health.problem("read");
      },
      async close() {
        if (closed) return;
        closed = true;
        await Promise.all([commits.idle(), gets.idle(), scans.idle(), tails.idle()]);
        await closeAll();
      },
    };
  }
}

/** About how many characters the transaction carries for it. */
function weightOf({ put, add, delete: removed, expect }: Commit): number {
  let weight = 1 + 64 * ((add?.length ?? 0) + (removed?.length ?? 0) + (expect?.length ?? 0));
  for (const [key, value] of put ?? []) weight += key.length + value.length;
  return weight;
}

/** Characters of a value, on average, of the tail whose values are the largest. */
function largest(tails: readonly Tail[], found: readonly (Joined | null)[]): number {
  let most = 0;
  tails.forEach(({ limit }, index) => {
    most = Math.max(most, (found[index]?.text.length ?? TAILS) / limit);
  });
  return most;
}
