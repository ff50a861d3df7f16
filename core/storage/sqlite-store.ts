/**
 * The store of `sqlite:FILE`. One connection writes groups of commits, and each kind of read has one of its own, so that none waits for
 * another: SQLite runs one statement at a time on a connection. All use Keyv's adapter.
 */
import { mkdir, stat } from "node:fs/promises";
import { dirname } from "node:path";
import type { Logger } from "pino";
import { messageOf, unavailable } from "../lib/errors.ts";
import { createBatch } from "./batch.ts";
import {
  createBoundedReader,
  fairShare,
  packRowSql,
  type RowQueries,
  textLimit,
  unpack,
  type WantedRows,
} from "./bounded-reader.ts";
import { createHealth, type Side } from "./health.ts";
import { checkCommit, checkKey, checkRange, checkTail, keyBounds } from "./keys.ts";
import { scanInSlices } from "./ranges.ts";
import { findDamage, isDamage } from "./sqlite-damage.ts";
import { explainSqlite, fileId, lockFile, makePrivate, PRIVATE_FOLDER, realFile } from "./sqlite-lock.ts";
import { createSqliteReserve } from "./sqlite-reserve.ts";
import {
  createRevisions,
  openSqliteConnection,
  prepareSqliteSchema,
  SQLITE,
  type SqliteConnection,
  type SqliteLayout,
} from "./sqlite-schema.ts";
import { isEmptyFile, SHRINKING, shrinkInBackground, shrunk } from "./sqlite-shrink.ts";
import { upgradeSqlite } from "./sqlite-upgrade.ts";
import { createSqliteCommits, createSqliteWriter } from "./sqlite-write.ts";
import type { Commit, Joined, Range, Row, Store, Tail } from "./store.ts";

// Reads tails from SQLite: the last values of a range, joined into one text.

/** From this many values on the text comes as bytes, which garbage collection does not copy. For few values a string is cheaper. */
const MIN_VALUES_AS_BYTES = 32;

interface Found {
  n: number;
  first: string | null;
  value: string | number | null;
  revision: number;
  /** 0: a value is too long. */
  text: string | Uint8Array | 0 | null;
}

/** The results in the order of `tails`; null for one with a value that is too long. Together they are at most 32 MiB. */
async function readTails(connection: SqliteConnection, tails: readonly Tail[]): Promise<(Joined | null)[]> {
  const kinds = new Map<string, number[]>();
  tails.forEach(({ limit, most }, index) => {
    const kind = `${limit} ${textLimit(most)}`;
    const known = kinds.get(kind);
    if (known === undefined) kinds.set(kind, [index]);
    else known.push(index);
  });
  const rows = tails.reduce((sum, { limit }) => sum + limit, 0);
  const results: (Joined | null)[] = [];
  for (const indexes of kinds.values()) {
    const group = indexes.map((index) => tails[index] as Tail);
    const found = await readTogether(connection, group, rows);
    for (const [at, index] of indexes.entries()) {
      const tail = tails[index] as Tail;
      // Alone it may have longer values.
      const alone = found[at] === null && rows > tail.limit;
      results[index] = (alone ? (await readTogether(connection, [tail], tail.limit))[0] : found[at]) ?? null;
    }
  }
  return results;
}

/** @param rows of all tails that are read at the moment, which share what a query may give */
async function readTogether(
  connection: SqliteConnection,
  tails: readonly Tail[],
  rows: number,
): Promise<(Joined | null)[]> {
  const { limit, most } = tails[0] as Tail;
  const longest = Math.min(fairShare(rows), Math.floor(textLimit(most) / limit));
  const asked = tails.map((tail) => {
    const { low, high } = keyBounds(tail);
    return [low, high, tail.otherKey];
  });
  const results: (Joined | null)[] = [];
  const found = await connection.query<Found>(tailSql(limit, longest), JSON.stringify(asked));
  for (const { n, first, text, value, revision } of found) {
    const other = value === null ? undefined : { key: tails[n]!.otherKey, value: String(value), revision };
    results[n] = text === 0 ? null : { text: text ?? "", first, other };
  }
  return results;
}

/**
 * Finds the first key of the tail, then reads upwards: going over the keys twice is cheaper than reversing the text.
 * `MATERIALIZED` makes SQLite look for the first key only once. Large values that are too long are left out of the text, which then is not used.
 */
function tailSql(limit: number, longest: number): string {
  const { size, whole } = SQLITE;
  const joined = `group_concat(iif(size > ${longest}, NULL, ${whole}), ',')`;
  const text = limit < MIN_VALUES_AS_BYTES ? joined : `CAST(${joined} AS BLOB)`;
  return `WITH asked AS MATERIALIZED (
      SELECT key AS n, value ->> 0 AS low, value ->> 1 AS high, value ->> 2 AS beside FROM json_each(?1)
    ), begun AS MATERIALIZED (
      SELECT n, low, high, beside,
        (SELECT key FROM rows WHERE key >= low AND key < high ORDER BY key DESC LIMIT 1 OFFSET ${limit - 1}) AS first
      FROM asked
    )
    SELECT n, first, ${whole} AS value, rows.revision,
      (SELECT CASE WHEN max(${size}) > ${longest} THEN 0 ELSE ${text} END FROM rows WHERE key >= ifnull(first, low) AND key < high) AS text
    FROM begun LEFT JOIN rows ON rows.key = beside`;
}

const packedSql = (longest: number): string =>
  `group_concat(${packRowSql(SQLITE, String(longest))}, char(30)) AS packed`;
/** A join, since `IN` would first sort the keys into a temporary table. */
const FROM_KEYS = "FROM (SELECT rows.* FROM json_each(?) AS asked CROSS JOIN rows ON rows.key = asked.value)";

/** Grouped reads of SQLite. Rows come packed into one text (bounded-reader.ts), which is four times as fast as one object per row. */
function createSqliteReader(connection: SqliteConnection): RowQueries {
  const packed = async (sql: string, ...parameters: unknown[]): Promise<Row[]> => {
    const [row] = await connection.query<{ packed: string | null }>(sql, ...parameters);
    return unpack(row?.packed ?? null);
  };

  /** One query for ranges that differ only in their bounds. */
  async function scanTogether(ranges: readonly Range[], longest: number): Promise<Row[][]> {
    const [first] = ranges;
    if (first === undefined) return [];
    if (ranges.length === 1) {
      const { low, high } = keyBounds(first);
      return [await packed(`SELECT ${packedSql(longest)} FROM (${selectRange(first, "?1", "?2")})`, low, high)];
    }
    const bounds = ranges.map((range) => {
      const { low, high } = keyBounds(range);
      return [low, high];
    });
    const select = selectRange(first, "bounds.value ->> 0", "bounds.value ->> 1");
    // Every result has its number `n`. Sorting in SQL would copy all packed texts.
    const sql = `SELECT bounds.key AS n, (SELECT ${packedSql(longest)} FROM (${select})) AS packed FROM json_each(?1) AS bounds`;
    const results: Row[][] = [];
    const found = await connection.query<{ n: number; packed: string | null }>(sql, JSON.stringify(bounds));
    for (const { n, packed } of found) results[n] = unpack(packed);
    return results;
  }

  return {
    async rows(keys, longest) {
      const found = await packed(`SELECT ${packedSql(longest)} ${FROM_KEYS}`, JSON.stringify(keys));
      return new Map(found.map((row) => [row.key, row]));
    },

    async ranges(ranges, longest) {
      const kinds = new Map<string, number[]>();
      ranges.forEach(({ reverse, limit, skip }, index) => {
        const kind = `${reverse === true} ${limit} ${skip ?? 0}`;
        const known = kinds.get(kind);
        if (known === undefined) kinds.set(kind, [index]);
        else known.push(index);
      });
      const results: Row[][] = [];
      for (const indexes of kinds.values()) {
        const rows = await scanTogether(
          indexes.map((index) => ranges[index] as Range),
          longest,
        );
        indexes.forEach((index, at) => {
          results[index] = rows[at] ?? [];
        });
      }
      return results;
    },
  };
}

const selectRange = ({ reverse, limit, skip = 0 }: Range, low: string, high: string): string =>
  `SELECT * FROM rows WHERE key >= ${low} AND key < ${high} ORDER BY key ${reverse ? "DESC" : "ASC"} LIMIT ${limit} OFFSET ${skip}`;

export interface SqliteOptions {
  /** Absolute path; it and its folder are created for the owner of the process alone. */
  file: string;
  /** The name of the store in messages; default `sqlite:FILE`. */
  where?: string;
  /** With `normal` a power failure may lose the newest commits, a crash of the process none. Default `full`. */
  synchronous?: "full" | "normal";
  logger: Logger;
  /** Largest size of the file in pages of 4 KiB; default: unlimited. */
  maxPages?: number;
  /** Milliseconds to wait for a lock of another process, such as a backup; default 2,000. */
  busyTimeout?: number;
  /** A file of at most so many bytes is read whole for damage before it is used; default 256 MiB. */
  checkUpTo?: number;
  /** Default: that of this release. */
  layout?: SqliteLayout;
  /** Milliseconds between two looks whether the file can be made smaller; default 10,000. */
  shrinkInterval?: number;
}

/** Bounds a transaction, so that the next one need not wait long. */
const MAX_GROUP_CHARACTERS = 8 * 1024 * 1024;
/** Larger results would live long enough to leave V8's young generation, which makes garbage collection more expensive. */
const MAX_ROWS_PER_QUERY = 1_600;

/** Estimated characters of all tails of one query. */
const MAX_TAILS_CHARACTERS = 8 * 1024 * 1024;

const BUSY_TIMEOUT_MS = 2_000;
/** Between two looks whether the file is still in its place. */
const PRESENCE_INTERVAL_MS = 1_000;

/** Read in a fraction of a second: a start must not take minutes. */
const CHECK_UP_TO = 256 * 1024 * 1024;

/** Size of the write-ahead log, in pages of 4 KiB, before a checkpoint: a page that changes often is then copied only once. */
const CHECKPOINT_PAGES = 8_000;

/** Page cache of each connection. */
const CACHE_MIB = { writing: 32, rows: 12, scans: 8, tails: 12, walks: 4 };

/** By kind: rows by key, short ranges, last messages, and long or background ranges. */
type Reading = Record<"rows" | "scans" | "tails" | "walks", SqliteConnection>;

/** @throws Error with a message for the user when the file cannot be used: locked by another process, of a newer version, not writable */
export async function openSqliteStore(options: SqliteOptions): Promise<Store> {
  const { where = `sqlite:${options.file}`, synchronous = "full", logger } = options;
  await mkdir(dirname(options.file), { recursive: true, mode: PRIVATE_FOLDER }).catch((error) => {
    throw new Error(`${where} cannot be opened: its folder cannot be created (${messageOf(error)})`, { cause: error });
  });
  const file = await realFile(options.file, where);
  const unlock = await lockFile(file, where);
  const { busyTimeout = BUSY_TIMEOUT_MS, checkUpTo = CHECK_UP_TO, layout } = options;
  // The journal with which a statement can be rolled back is kept in memory, not in a file.
  const pragmas = (cacheMib: number) => [
    `cache_size = -${cacheMib * 1024}`,
    `synchronous = ${synchronous}`,
    "temp_store = MEMORY",
  ];
  const opened: { close(): Promise<void> }[] = [];
  const closeAll = async (): Promise<void> => {
    for (const connection of opened.reverse()) await connection.close();
    await unlock();
  };

  try {
    const sizeLimit = options.maxPages === undefined ? [] : [`max_page_count = ${options.maxPages}`];
    const isNew = await isEmptyFile(file);
    await makePrivate(file);
    const writing = await openSqliteConnection({
      file,
      busyTimeout,
      pragmas: [
        SHRINKING,
        "journal_mode = WAL",
        `wal_autocheckpoint = ${CHECKPOINT_PAGES}`,
        ...pragmas(CACHE_MIB.writing),
        ...sizeLimit,
      ],
    });
    opened.push(writing);
    // Only a file without tables can be told to shrink, and Keyv's adapter makes its table at once: it is written anew.
    if (isNew) await writing.query("VACUUM");
    await upgradeSqlite(writing, { file, where }, { layout, report: (line) => logger.info(line) });
    await prepareSqliteSchema(writing, layout?.version);
    const openReading = async (cacheMib: number): Promise<SqliteConnection> => {
      const connection = await openSqliteConnection({
        file,
        busyTimeout,
        pragmas: [...pragmas(cacheMib), "query_only = true"],
      });
      opened.push(connection);
      return connection;
    };
    const reading = {
      rows: await openReading(CACHE_MIB.rows),
      scans: await openReading(CACHE_MIB.scans),
      tails: await openReading(CACHE_MIB.tails),
      walks: await openReading(CACHE_MIB.walks),
    };
    const damage = (await stat(file)).size <= checkUpTo ? await findDamage(reading.walks) : null;
    if (damage !== null) throw new Error(`${where} is damaged (${damage}): bring back a backup with penstock restore`);
    return createStore(writing, reading, await createPresence(file));
  } catch (error) {
    await closeAll().catch(() => {});
    if (!/^SQLITE_/.test(String((error as { code?: unknown }).code))) throw error;
    throw new Error(`${where} cannot be opened: ${explainSqlite(error)} (${messageOf(error)})`, { cause: error });
  }

  function createStore(
    writing: SqliteConnection,
    reading: Reading,
    present: Awaited<ReturnType<typeof createPresence>>,
  ): Store {
    const writer = createSqliteWriter(writing, createRevisions(writing));
    const health = createHealth(logger, where, explainSqlite);
    const reserve = createSqliteReserve(file);
    const shrinking = shrinkInBackground(writing, {
      inTurn: writer.inTurn,
      reserve,
      failed: (error) => logger.debug({ err: error }, `${where} could not be made smaller`),
      interval: options.shrinkInterval,
    });
    let closed = false;
    /** Once damage was met, nobody knows what else is damaged: what works elsewhere in the file does not take this back. */
    let damage: string | null = null;

    async function tracked<T>(side: Side, work: () => Promise<T>): Promise<T> {
      try {
        const result = await work();
        if (damage === null) health.worked(side);
        return result;
      } catch (error) {
        if (isDamage(error)) damage = explainSqlite(error);
        throw health.failed(side, error);
      }
    }

    const written = createSqliteCommits({
      writer,
      reserve,
      present,
      tracked: (work) => tracked("write", work),
      pressed: () => shrinking.hurry(),
    });
    const commits = createBatch<Commit, number>(written.write, { limit: MAX_GROUP_CHARACTERS, weigh: commitWeight });
    const reader = createBoundedReader(createSqliteReader(reading.rows));
    const gets = createBatch<WantedRows, (Row | undefined)[]>((lists) => tracked("read", () => reader.lists(lists)), {
      limit: MAX_ROWS_PER_QUERY,
      weigh: ({ keys }) => keys.length,
    });
    const scansOver = (connection: SqliteConnection) => {
      const { ranges: read } = createBoundedReader(createSqliteReader(connection));
      return createBatch<Range, Row[]>((ranges) => tracked("read", () => read(ranges)), {
        limit: MAX_ROWS_PER_QUERY,
        weigh: ({ limit, skip = 0 }) => 4 + limit + skip,
      });
    };
    const scans = scansOver(reading.scans);
    const walks = scansOver(reading.walks);
    /** Estimated characters of a value, from the largest ones of recent tails. */
    let size = 512;
    const tails = createBatch<Tail, Joined | null>(
      async (asked) => {
        const found = await tracked("read", () => readTails(reading.tails, asked));
        size = Math.max(largestValue(asked, found), size * 0.95, 512);
        return found;
      },
      { limit: MAX_TAILS_CHARACTERS, weigh: ({ limit }) => limit * size },
    );

    const checkOpen = (): void => {
      if (closed) throw unavailable("storage is unavailable: it is closed");
    };

    return {
      kind: "sqlite",
      file: {
        id: () => fileId(file),
        async shrink() {
          return shrunk(where, await shrinking.all(), file);
        },
      },
      async get(key) {
        checkOpen();
        checkKey(key);
        return (await gets({ keys: [key], longest: undefined }))[0];
      },
      async getMany(keys, longest) {
        checkOpen();
        keys.forEach(checkKey);
        return keys.length === 0 ? [] : gets({ keys, longest });
      },
      async scan(range) {
        checkOpen();
        checkRange(range);
        const { limit, skip = 0, background } = range;
        return background || limit + skip > MAX_ROWS_PER_QUERY ? scanInSlices(walks, range) : scans(range);
      },
      async tail(tail) {
        checkOpen();
        checkTail(tail);
        return tails(tail);
      },
      async commit(commit) {
        checkOpen();
        checkCommit(commit);
        // It would be lost with the file.
        if (damage !== null) throw unavailable(`storage is unavailable: ${damage}`);
        return commits(commit);
      },
      async problem() {
        if (closed) return "it is closed";
        if (damage !== null) return damage;
        // After a failure a write is tried here, since there may be no other write to show that it works again.
        if (health.problem("write") === null) await present(true).catch((error) => void health.failed("write", error));
        else await tracked("write", written.check).catch(() => {});
        await tracked("read", () => reading.rows.query("SELECT 1 FROM rows LIMIT 1")).catch(() => {});
        return health.problem("write") ?? health.problem("read");
      },
      async close() {
        if (closed) return;
        closed = true;
        await shrinking.stop();
        await Promise.all([commits.idle(), gets.idle(), scans.idle(), walks.idle(), tails.idle()]);
        await closeAll();
      },
    };
  }
}

/** About how many characters the commit adds to the transaction. */
function commitWeight({ put, add, delete: removed, expect }: Commit): number {
  let weight = 1 + 64 * ((add?.length ?? 0) + (removed?.length ?? 0) + (expect?.length ?? 0));
  for (const [key, value] of put ?? []) weight += key.length + value.length;
  return weight;
}

/** The average characters of a value, in the tail with the largest values. */
function largestValue(tails: readonly Tail[], found: readonly (Joined | null)[]): number {
  let largest = 0;
  tails.forEach(({ limit }, index) => {
    largest = Math.max(largest, (found[index]?.text.length ?? MAX_TAILS_CHARACTERS) / limit);
  });
  return largest;
}

/**
 * Checks that the file is still in its place: SQLite goes on writing into a file that was moved away, and its log stays behind.
 *
 * @returns a check that rejects like the driver when the file is gone; it looks at most once a second, unless `now` is true
 */
async function createPresence(file: string): Promise<(now?: boolean) => Promise<void>> {
  const { ino, dev } = await stat(file);
  let checkedAt = performance.now();
  let gone = false;
  return async (now = false) => {
    if (!now && !gone && performance.now() - checkedAt < PRESENCE_INTERVAL_MS) return;
    checkedAt = performance.now();
    const found = await stat(file).catch(() => undefined);
    gone = found?.ino !== ino || found.dev !== dev;
    if (gone)
      throw Object.assign(new Error(`${file} is not the file that was opened`), { code: "SQLITE_READONLY_DBMOVED" });
  };
}
