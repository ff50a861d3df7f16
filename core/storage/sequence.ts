/** Rising numbers that are never given twice, over restarts and processes, without a commit for each. */
import { CommitConflict } from "../lib/errors.ts";
import type { Store } from "./store.ts";

export interface Sequence {
  /**
   * The next number, greater than all that this sequence gave before. A promise only when the reserved block is used up.
   * Rejects with ServiceError `unavailable` while the store cannot reserve another.
   */
  next(): number | Promise<number>;
}

const BLOCK = 4096;

/**
 * Numbers from 1, reserved in blocks in the counter `key`. What a process reserved and did not give is a gap. Processes that
 * share a store interleave by whole blocks.
 */
export async function createSequence(store: Store, key: string, block = BLOCK): Promise<Sequence> {
  let [next, end] = await reserve(store, key, block);
  let ahead: [number, number] | undefined;
  let reserving: Promise<void> | undefined;

  /** One reservation at a time; who needs numbers at once waits for it. */
  function reserveAhead(): Promise<void> {
    reserving ??= reserve(store, key, block)
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
      [next, end] = ahead;
      ahead = undefined;
    }
    if (next >= end) return undefined;
    // Half way through, so that the next block is there before this one ends. A failure shows when it is needed.
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

  return { next: () => take() ?? wait() };
}

/** The numbers from the first to before the second are ours. */
async function reserve(store: Store, key: string, block: number): Promise<[number, number]> {
  for (;;) {
    const row = await store.get(key);
    const first = row === undefined ? 1 : Number(row.value);
    try {
      await store.commit({ put: [[key, String(first + block)]], expect: [[key, row?.revision ?? null]] });
      return [first, first + block];
    } catch (error) {
      // Another process was first: take the block after its.
      if (!(error instanceof CommitConflict)) throw error;
    }
  }
}
