/** Gives the space of deleted rows back to the disk: a little at a time, beside the commits. */
import { stat } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";
import { Interval } from "../lib/interval.ts";
import { openSqliteConnection, type SqliteConnection } from "./sqlite-connection.ts";

/** A pragma for a new file, or for `VACUUM`: SQLite then knows for each page who refers to it, so that pages can be moved. */
export const SHRINKING = "auto_vacuum = INCREMENTAL";

const CHECK_INTERVAL_MS = 10_000;
/** Free pages are used again by new rows: only many of them are worth the work of moving others. */
const MIN_FREE_PAGES = 4_096;
const MIN_FREE_SHARE = 1 / 4;
/** A commit that comes meanwhile waits for one slice, which takes one or two milliseconds. */
const PAGES_PER_SLICE = 64;
const PAUSE_BETWEEN_SLICES_MS = 50;

/** Only a file without tables can be told, and Keyv's adapter makes its table at once: `VACUUM` writes that small file anew. */
export async function createShrinkingFile(file: string, busyTimeout: number): Promise<void> {
  const size = await stat(file).then(
    (found) => found.size,
    () => 0,
  );
  if (size > 0) return;
  const connection = await openSqliteConnection({ file, busyTimeout, pragmas: [SHRINKING] });
  try {
    await connection.query("VACUUM");
  } finally {
    await connection.close();
  }
}

interface ShrinkOptions {
  /** Runs work between two transactions. */
  inTurn(work: () => Promise<unknown>): Promise<unknown>;
  failed(error: unknown): void;
  /** Milliseconds; default 10,000. */
  interval?: number;
}

/** Looks from time to time whether much of the file is free. Does nothing with a file that was made without `SHRINKING`. */
export function shrinkInBackground(
  connection: SqliteConnection,
  { inTurn, failed, interval = CHECK_INTERVAL_MS }: ShrinkOptions,
): Interval {
  const rounds = new Interval(interval, round, failed);

  async function round(): Promise<void> {
    const { free, all, mode } = await pages(connection);
    if (mode === 0 || free < Math.max(MIN_FREE_PAGES, all * MIN_FREE_SHARE)) return;
    for (let left = free; left > 0 && !rounds.signal.aborted; left -= PAGES_PER_SLICE) {
      await inTurn(() => connection.query(`PRAGMA incremental_vacuum(${PAGES_PER_SLICE})`));
      await sleep(PAUSE_BETWEEN_SLICES_MS, undefined, { signal: rounds.signal }).catch(() => {});
    }
    // The file itself gets shorter when the log is written into it, which may be long after the last commit.
    await connection.query("PRAGMA wal_checkpoint(PASSIVE)");
  }

  rounds.start();
  return rounds;
}

async function pages(connection: SqliteConnection): Promise<{ free: number; all: number; mode: number }> {
  const [row] = await connection.query<{ free: number; total: number; mode: number }>(
    `SELECT freelist_count AS free, page_count AS total, auto_vacuum AS mode
       FROM pragma_freelist_count, pragma_page_count, pragma_auto_vacuum`,
  );
  return { free: row?.free ?? 0, all: row?.total ?? 0, mode: row?.mode ?? 0 };
}
