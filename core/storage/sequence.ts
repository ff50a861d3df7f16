/** Rising numbers that are never used twice, across restarts and processes, without a commit for each. */
import { CommitConflict } from "../lib/errors.ts";
import type { Store } from "./store.ts";

export interface Sequence {
  /**
   * The next number, greater than all before it. A promise only when the reserved block is used up, which
   * rejects with ServiceError `unavailable` while the store cannot reserve another.
   */
  next(): number | Promise<number>;
}

const BLOCK_SIZE = 4096;

/**
 * Numbers from 1, reserved in blocks in the row `key`. Numbers that a process reserved and did not use are a gap. Processes
 * that share a store use different blocks.
 */
export async function createSequence(store: Store, key: string, block = BLOCK_SIZE): Promise<Sequence> {
  let [next, end] = await reserve(store, key, block);
  let ahead: [number, number] | undefined;
  let reserving: Promise<void> | undefined;

  /** One reservation at a time; callers that need numbers now wait for it. */
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

  return { next: () => take() ?? wait() };
}

/** @returns the reserved numbers: the first inclusive, the second exclusive */
async function reserve(store: Store, key: string, block: number): Promise<[number, number]> {
  for (;;) {
    const row = await store.get(key);
    const first = row === undefined ? 1 : Number(row.value);
    try {
      await store.commit({ put: [[key, String(first + block)]], expect: [[key, row?.revision ?? null]] });
      return [first, first + block];
    } catch (error) {
      // Another process was first: try the next block.
      if (!(error instanceof CommitConflict)) throw error;
    }
  }
}
