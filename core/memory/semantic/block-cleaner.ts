/**
 * Removes from the blocks what was deleted. A search finds nothing without a row anyway, but what was deleted must not stay in the store,
 * and takes room. The commit that deletes counts it too, so that after a crash the next process cleans up.
 */
import type { Logger } from "pino";
import { messageOf } from "../../lib/errors.ts";
import { unlessConflict } from "../../storage/conflict.ts";
import { allRows } from "../../storage/ranges.ts";
import type { Row, Store } from "../../storage/store.ts";
import type { IndexLayout, OwnerKeys } from "./layout.ts";
import type { ScanThread } from "./scan-thread.ts";
import type { Draft } from "./semantic.ts";
import { readPack } from "./stored-vectors.ts";

/** Deletions are collected for so long: all blocks of an owner are read for them. */
const MIN_DELAY_MS = 60_000;
/** Cleaning may take this share of the time. */
const SHARE = 1 / 20;
const MAX_DELAY_MS = 24 * 3_600_000;

interface BlockCleanerParts {
  store: Store;
  layout: IndexLayout;
  thread: ScanThread;
  signal?: AbortSignal | undefined;
  logger?: Logger | undefined;
}

export class BlockCleaner {
  readonly #parts: BlockCleanerParts;
  #timer: NodeJS.Timeout | undefined;
  #running: Promise<void> = Promise.resolve();
  #delay = MIN_DELAY_MS;

  constructor(parts: BlockCleanerParts) {
    this.#parts = parts;
    parts.signal?.addEventListener("abort", () => clearTimeout(this.#timer), { once: true });
  }

  /** Adds to a commit that it deletes vectors of an owner. */
  deletes(draft: Draft, { deletions }: OwnerKeys, count: number): void {
    draft.add.push([deletions, count]);
    if (this.#timer !== undefined || this.#parts.signal?.aborted) return;
    this.#timer = setTimeout(() => this.start(), this.#delay);
    this.#timer.unref();
  }

  /** Cleans the blocks of all owners of whom something was deleted. Returns at once. */
  start(): void {
    this.#timer = undefined;
    this.#running = this.#running.then(() => this.#run());
  }

  /** Resolves when nothing is being cleaned. */
  async idle(): Promise<void> {
    await this.#running;
  }

  async #run(): Promise<void> {
    const { store, layout, signal, logger } = this.#parts;
    const begun = performance.now();
    try {
      for await (const counters of allRows(store, { prefix: layout.deletions })) {
        for (const counter of counters) {
          await this.#cleanOwner(layout.ofCounter(counter.key), counter);
          if (signal?.aborted) return;
        }
      }
    } catch (error) {
      if (!signal?.aborted)
        logger?.warn({ err: error }, `semantic memory: blocks wait to be cleaned: ${messageOf(error)}`);
    }
    const took = performance.now() - begun;
    this.#delay = Math.min(Math.max(MIN_DELAY_MS, took / SHARE), MAX_DELAY_MS);
  }

  async #cleanOwner(keys: OwnerKeys, counter: Row): Promise<void> {
    const { store, signal } = this.#parts;
    const pack = await store.get(keys.pack);
    for (let number = 0, next = pack === undefined ? 0 : readPack(pack).next; number < next; number++) {
      const block = await store.get(keys.block(number));
      if (block !== undefined) await this.#cleanBlock(keys, block);
      if (signal?.aborted) return;
    }
    await this.#endCleaning(keys, counter, pack);
  }

  /**
   * Removes the counter, unless more was deleted or packed meanwhile. The pack row is written again, so that a packer which has read
   * vectors before they were deleted gives way: it would bring them back into a block that is clean.
   */
  async #endCleaning({ pack: key }: OwnerKeys, counter: Row, pack: Row | undefined): Promise<void> {
    const written = pack === undefined ? {} : { put: [[key, pack.value] as const] };
    const expect = [[counter.key, counter.revision] as const, [key, pack?.revision ?? null] as const];
    await unlessConflict(this.#parts.store.commit({ ...written, delete: [counter.key], expect }));
  }

  async #cleanBlock(keys: OwnerKeys, { key, value, revision }: Row): Promise<void> {
    const { store, thread } = this.#parts;
    const [, names] = JSON.parse(value) as [number, string[], string];
    const found = await store.getMany(
      names.map((name) => keys.vectors + name),
      1,
    );
    const left = names.filter((_, index) => found[index] !== undefined);
    if (left.length === names.length) return;
    const rows = await store.getMany(left.map((name) => keys.vectors + name));
    // One that was deleted just now has been counted again.
    const there = left.filter((_, index) => rows[index] !== undefined);
    const values = rows.flatMap((row) => (row === undefined ? [] : [row.value]));
    const cleaned =
      there.length === 0 ? { delete: [key] } : { put: [[key, await thread.pack(there, values)] as const] };
    await unlessConflict(store.commit({ ...cleaned, expect: [[key, revision]] }));
  }
}
