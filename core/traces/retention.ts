/** Removes traces that are too old or too many: the oldest segments first, a few at a time. */
import { setTimeout as sleep } from "node:timers/promises";
import type { Logger } from "pino";
import { CommitConflict, messageOf } from "../lib/errors.ts";
import { segmentsFrom, TRACE_COUNTERS } from "../storage/keys.ts";
import type { Store } from "../storage/store.ts";
import { commitOfRemovals, readHeads } from "./segment-rows.ts";
import { sealedAt } from "./segments.ts";

/** The delay of the first round, and the times between two rounds and between two commits of a round. */
const FIRST_ROUND_DELAY_MS = 5_000;
const ROUND_INTERVAL_MS = 10_000;
const COMMIT_PAUSE_MS = 10;
const SEGMENTS_PER_COMMIT = 32;

interface TraceRetentionOptions {
  /** How many milliseconds traces are kept. */
  readonly retention: number;
  /** How many characters of traces are kept. */
  readonly size: number;
  readonly logger: Logger;
  /** Milliseconds between two rounds; default ten seconds. */
  readonly round?: number;
}

export class TraceRetention {
  readonly #store: Store;
  readonly #options: TraceRetentionOptions;
  readonly #stop = new AbortController();
  #timer: NodeJS.Timeout | null = null;
  #round: Promise<void> = Promise.resolve();
  #failing = false;

  constructor(store: Store, options: TraceRetentionOptions) {
    this.#store = store;
    this.#options = options;
  }

  start(): void {
    this.#arm(Math.min(FIRST_ROUND_DELAY_MS, this.#options.round ?? FIRST_ROUND_DELAY_MS));
  }

  async close(): Promise<void> {
    this.#stop.abort();
    if (this.#timer !== null) clearTimeout(this.#timer);
    await this.#round;
  }

  /** Removes what is older than the retention at `now` (milliseconds since 1970), and the oldest traces beyond the size limit. */
  async removeOld(now: number): Promise<void> {
    const { retention, size } = this.#options;
    const old = segmentsFrom(Math.max(0, Math.floor(now - retention)));
    while (!this.#stop.signal.aborted) {
      // Read again in every round, since other processes remove traces too.
      const excess = await this.#excess(size);
      const heads = await readHeads(this.#store, { ...(excess <= 0 && { before: old }), limit: SEGMENTS_PER_COMMIT });
      let freed = 0;
      const group = heads.filter((head) => {
        const isRemoved = freed < excess || sealedAt(head.name) < now - retention;
        if (isRemoved) freed += head.head.size;
        return isRemoved;
      });
      if (group.length === 0) return;
      try {
        await this.#store.commit(commitOfRemovals(group));
      } catch (error) {
        // Another process has just removed some of them.
        if (!(error instanceof CommitConflict)) throw error;
        return;
      }
      await sleep(COMMIT_PAUSE_MS, undefined, { signal: this.#stop.signal }).catch(() => {});
    }
  }

  async #excess(size: number): Promise<number> {
    const row = await this.#store.get(TRACE_COUNTERS.size);
    return Number(row?.value ?? 0) - size;
  }

  #arm(delay: number): void {
    if (this.#stop.signal.aborted) return;
    this.#timer = setTimeout(() => {
      this.#round = this.#runRound().finally(() => this.#arm(this.#options.round ?? ROUND_INTERVAL_MS));
    }, delay);
    this.#timer.unref();
  }

  /** Logs a failure only once until it is over. */
  async #runRound(): Promise<void> {
    try {
      await this.removeOld(Date.now());
      this.#failing = false;
    } catch (error) {
      if (!this.#failing) {
        this.#options.logger.warn({ err: error }, `old traces cannot be removed: ${messageOf(error)}`);
      }
      this.#failing = true;
    }
  }
}
