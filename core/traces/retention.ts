/** Removes traces that are too old or too many: the oldest segments first, a few at a time. */
import type { Logger } from "pino";
import { messageOf } from "../lib/errors.ts";
import { Interval } from "../lib/interval.ts";
import { unlessConflict } from "../storage/conflict.ts";
import { SEGMENTS, segmentsFrom, TRACE_COUNTERS } from "../storage/keys.ts";
import { pagesInBackground } from "../storage/ranges.ts";
import type { Store } from "../storage/store.ts";
import { commitOfRemovals, parseHead } from "./segment-rows.ts";
import { sealedAt } from "./segments.ts";

const FIRST_ROUND_DELAY_MS = 5_000;
const ROUND_INTERVAL_MS = 10_000;
const SEGMENTS_PER_COMMIT = 32;

interface TraceRetentionOptions {
  /** How many milliseconds traces are kept. */
  readonly retention: number;
  /** How many characters of traces are kept. */
  readonly size: number;
  /** By how many bytes they take more of the heap than they may, in a store that is there. */
  readonly excess?: () => number;
  readonly logger: Logger;
  /** Milliseconds between two rounds; default ten seconds. */
  readonly round?: number;
}

export class TraceRetention {
  readonly #store: Store;
  readonly #options: TraceRetentionOptions;
  readonly #rounds: Interval;

  constructor(store: Store, options: TraceRetentionOptions) {
    this.#store = store;
    this.#options = options;
    this.#rounds = new Interval(
      options.round ?? ROUND_INTERVAL_MS,
      () => this.removeOld(Date.now()),
      (error) => options.logger.warn({ err: error }, `old traces cannot be removed: ${messageOf(error)}`),
    );
  }

  start(): void {
    this.#rounds.start(Math.min(FIRST_ROUND_DELAY_MS, this.#options.round ?? FIRST_ROUND_DELAY_MS));
  }

  close(): Promise<void> {
    return this.#rounds.stop();
  }

  /** Removes what is older than the retention at `now` (milliseconds since 1970), and the oldest traces beyond the size limit. */
  async removeOld(now: number): Promise<void> {
    const { retention, size } = this.#options;
    const oldest = Math.max(0, Math.floor(now - retention));
    const range = { prefix: SEGMENTS, ...((await this.#excess(size)) <= 0 && { before: segmentsFrom(oldest) }) };
    for await (const rows of pagesInBackground(this.#store, range, SEGMENTS_PER_COMMIT, this.#rounds.signal)) {
      // Read again for every page, because other processes remove traces too.
      const excess = await this.#excess(size);
      let freed = 0;
      const group = rows.map(parseHead).filter(({ name, head }) => {
        const isRemoved = freed < excess || sealedAt(name) < now - retention;
        if (isRemoved) freed += head.size;
        return isRemoved;
      });
      if (group.length === 0) return;
      // A conflict means that another process is removing traces.
      if (!(await unlessConflict(this.#store.commit(commitOfRemovals(group))))) return;
    }
  }

  async #excess(size: number): Promise<number> {
    const row = await this.#store.get(TRACE_COUNTERS.size);
    return Math.max(Number(row?.value ?? 0) - size, this.#options.excess?.() ?? 0);
  }
}
