/**
 * Rising numbers, across restarts and processes, without a commit for each. A database that was restored or failed over may have lost
 * the last blocks: then two processes may be given one number, and what is created must expect that its row is absent.
 */
import { CommitConflict, unavailable } from "../lib/errors.ts";
import { decodeNumber } from "./keys.ts";
import type { Store } from "./store.ts";

export interface Sequence {
  /**
   * The next number, greater than all before it. A promise only when the reserved block is used up, which
   * rejects with ServiceError `unavailable` while the store cannot reserve another.
   */
  next(): number | Promise<number>;
  /** Gives up the block that this number came from, because another process uses it too. */
  giveUp(taken: number): void;
}

const BLOCK_SIZE = 4096;
/** A process has two blocks at most that others may have been given too. */
const MAX_TAKEN = 8;

/**
 * Numbers from 1, reserved in blocks in the row `key`. Numbers that a process reserved and did not use are a gap. Processes
 * that share a store use different blocks.
 *
 * @param numbered prefixes of the rows whose keys go on with a number: a block begins after the greatest one that is in use
 */
export async function createSequence(
  store: Store,
  key: string,
  numbered: readonly string[],
  block = BLOCK_SIZE,
): Promise<Sequence> {
  let [first, end] = await reserve(store, key, numbered, block);
  let next = first;
  let ahead: [number, number] | undefined;
  let reserving: Promise<void> | undefined;

  /** One reservation at a time; callers that need numbers now wait for it. */
  function reserveAhead(): Promise<void> {
    reserving ??= reserve(store, key, numbered, block)
      .then((reserved) => {
        ahead = reserved;
      })
      .finally(() => {
        reserving = undefined;
      });
    return reserving;
  }

  function take(): number | undefined {
    if (next >= end && ahead !== undefined) {
      [first, end] = ahead;
      next = first;
      ahead = undefined;
    }
    if (next >= end) return undefined;
    // In the middle of a block, so that the next one is ready in time. A failure shows when that block is needed.
    if (end - next <= block / 2 && ahead === undefined && reserving === undefined) reserveAhead().catch(() => {});
    return next++;
  }

  async function wait(): Promise<number> {
    for (;;) {
      await reserveAhead();
      const value = take();
      if (value !== undefined) return value;
    }
  }

  return {
    next: () => take() ?? wait(),
    giveUp(taken) {
      if (taken >= first && taken < end) next = end;
    },
  };
}

/**
 * Creates something with the next number, and with another one when that turns out to be taken. `create` may run several times, and its
 * commit expects that none of the rows exists.
 *
 * @param rowsOf the keys that nothing else may have when the number is free
 */
export async function withFreeNumber<T>(
  numbers: Sequence,
  rowsOf: (number: number) => readonly string[],
  create: (number: number) => Promise<T>,
): Promise<T> {
  for (let count = 1; ; count++) {
    const next = numbers.next();
    const number = typeof next === "number" ? next : await next;
    try {
      return await create(number);
    } catch (error) {
      if (!(error instanceof CommitConflict)) throw error;
      const rows = rowsOf(number);
      if (!error.keys.every((key) => rows.includes(key))) throw error;
      if (count === MAX_TAKEN) throw unavailable("other processes use the same numbers, try again");
      numbers.giveUp(number);
    }
  }
}

/** @returns the reserved numbers: the first inclusive, the second exclusive */
async function reserve(
  store: Store,
  key: string,
  numbered: readonly string[],
  block: number,
): Promise<[number, number]> {
  for (;;) {
    const [row, ...used] = await Promise.all([store.get(key), ...numbered.map((prefix) => greatest(store, prefix))]);
    const first = Math.max(row === undefined ? 1 : Number(row.value), ...used.map((number) => number + 1));
    try {
      await store.commit({ put: [[key, String(first + block)]], expect: [[key, row?.revision ?? null]] });
      return [first, first + block];
    } catch (error) {
      // Another process was first: try the next block.
      if (!(error instanceof CommitConflict)) throw error;
    }
  }
}

/** The greatest number in the keys with a prefix; 0 when there are none. */
async function greatest(store: Store, prefix: string): Promise<number> {
  const [row] = await store.scan({ prefix, reverse: true, limit: 1 });
  return row === undefined ? 0 : decodeNumber(row.key.slice(prefix.length).split("/", 1)[0]!);
}
