/**
 * Gives the space of deleted rows back to the disk: a little at a time, beside the commits. On a full disk all of it at once, since
 * somebody has deleted to make room.
 */
import { stat } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";
import { invalid } from "../lib/errors.ts";
import { nextTurn } from "../lib/event-loop-turns.ts";
import { Interval } from "../lib/interval.ts";
import type { SqliteReserve } from "./sqlite-reserve.ts";
import type { SqliteConnection } from "./sqlite-schema.ts";

/** A pragma for a new file, or for `VACUUM`: SQLite then knows for each page who refers to it, so that pages can be moved. */
export const SHRINKING = "auto_vacuum = INCREMENTAL";

const CHECK_INTERVAL_MS = 10_000;
/** Free pages are used again by new rows: only many of them are worth the work of moving others. */
const MIN_FREE_PAGES = 4_096;
const MIN_FREE_SHARE = 1 / 4;
/** A commit that comes meanwhile waits for one slice, which takes one or two milliseconds. */
const PAGES_PER_SLICE = 64;
const PAUSE_BETWEEN_SLICES_MS = 50;

/** Whether nothing was written into a file yet, or it is not there. */
export const isEmptyFile = (file: string): Promise<boolean> =>
  stat(file).then(
    ({ size }) => size === 0,
    () => true,
  );

/** What a command says. */
export const shrunk = async (where: string, before: number, file: string): Promise<string> =>
  `${where}: ${(await stat(file)).size} bytes, before ${before}`;

interface ShrinkOptions {
  /** Runs work between two transactions. */
  inTurn(work: () => Promise<unknown>): Promise<unknown>;
  failed(error: unknown): void;
  reserve: SqliteReserve;
  /** Milliseconds; default 10,000. */
  interval?: number;
}

/** Looks from time to time whether much of the file is free. Does not shrink a file that was made without `SHRINKING`. */
export function shrinkInBackground(
  connection: SqliteConnection,
  { inTurn, failed, reserve, interval = CHECK_INTERVAL_MS }: ShrinkOptions,
): Pick<Interval, "hurry" | "stop"> & { all(): Promise<number> } {
  const rounds = new Interval(interval, round, failed);

  async function round(): Promise<void> {
    await reserve.keep();
    const { free, all, mode } = await pages(connection);
    const isPressed = reserve.isSpent();
    if (isPressed) await emptyLog();
    if (mode === 0 || (!isPressed && free < Math.max(MIN_FREE_PAGES, all * MIN_FREE_SHARE))) return;
    await giveBack(free, () => (reserve.isSpent() ? emptyLog() : pause()));
  }

  async function giveBack(free: number, between: () => Promise<unknown>): Promise<void> {
    // Counted again after each slice: what was counted above may have been in the middle of a transaction.
    for (let left = free; left > 0 && !rounds.signal.aborted; await between()) {
      await inTurn(async () => {
        await connection.query(`PRAGMA incremental_vacuum(${PAGES_PER_SLICE})`);
        left = (await pages(connection)).free;
      });
    }
    await shorten();
  }

  const pause = () => sleep(PAUSE_BETWEEN_SLICES_MS, undefined, { signal: rounds.signal }).catch(() => {});

  /** The file itself gets shorter when the whole log is in it, which a commit or a read beside the checkpoint prevents. */
  async function shorten(): Promise<void> {
    while (!rounds.signal.aborted) {
      // Most of the log is written beside the commits, the rest between two of them.
      await checkpoint(connection);
      let complete = false;
      await inTurn(async () => {
        complete = await checkpoint(connection);
      });
      if (complete) return;
      await pause();
    }
  }

  /** Gives the room that the log takes back as well. */
  async function emptyLog(): Promise<void> {
    await inTurn(() => connection.query("PRAGMA wal_checkpoint(TRUNCATE)")).catch(failed);
    await reserve.keep();
  }

  rounds.start();
  return {
    hurry: () => rounds.hurry(),
    stop: () => rounds.stop(),
    async all() {
      const { free, mode, bytes } = await pages(connection);
      if (mode === 0)
        throw invalid("an older version made the file: it gives space back only while no service uses it");
      await giveBack(free, nextTurn);
      return bytes;
    },
  };
}

/** Whether all of the log was written into the file. */
async function checkpoint(connection: SqliteConnection): Promise<boolean> {
  const [row] = await connection.query<{ log: number; checkpointed: number }>("PRAGMA wal_checkpoint(PASSIVE)");
  return row?.log === row?.checkpointed;
}

async function pages(connection: SqliteConnection) {
  const [row] = await connection.query<{ free: number; all: number; mode: number; bytes: number }>(
    `SELECT freelist_count AS free, page_count AS "all", auto_vacuum AS mode, page_count * page_size AS bytes
       FROM pragma_freelist_count, pragma_page_count, pragma_auto_vacuum, pragma_page_size`,
  );
  return row!;
}
