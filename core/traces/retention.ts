/** What happens to traces that are too old or too many: they go, the oldest segments first and a few at a time. */
import { setTimeout as sleep } from "node:timers/promises";
import type { Logger } from "pino";
import { CommitConflict, messageOf } from "../lib/errors.ts";
import { segmentsFrom, TRACE_COUNTERS } from "../storage/keys.ts";
import type { Store } from "../storage/store.ts";
import { commitOfRemovals, readHeads } from "./segment-rows.ts";
import { sealedAt } from "./segments.ts";

/** Milliseconds: before the first round, between two, and between two commits of one. */
const FIRST = 5_000;
const ROUND = 10_000;
const PAUSE = 10;
/** Segments of one commit. */
const BATCH = 32;

interface TraceRetentionOptions {
  /** Milliseconds after they were recorded. */
  readonly retention: number;
  /** Characters that are kept at all. */
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
    this.#arm(Math.min(FIRST, this.#options.round ?? FIRST));
  }

  async close(): Promise<void> {
    this.#stop.abort();
    if (this.#timer !== null) clearTimeout(this.#timer);
    await this.#round;
  }

  /** Removes what is older than the retention at `now` (milliseconds since 1970), and the oldest of what is too much. */
  async removeOld(now: number): Promise<void> {
    const { retention, size } = this.#options;
    const old = segmentsFrom(Math.max(0, Math.floor(now - retention)));
    while (!this.#stop.signal.aborted) {
      // Each time anew: other processes are at it too.
      const tooMuch = await this.#tooMuch(size);
      const heads = await readHeads(this.#store, { ...(tooMuch <= 0 && { before: old }), limit: BATCH });
      let freed = 0;
      const group = heads.filter((head) => {
        const goes = freed < tooMuch || sealedAt(head.name) < now - retention;
        if (goes) freed += head.head.size;
        return goes;
      });
      if (group.length === 0) return;
      try {
        await this.#store.commit(commitOfRemovals(group));
      } catch (error) {
        // Another process is at it.
        if (!(error instanceof CommitConflict)) throw error;
        return;
      }
      await sleep(PAUSE, undefined, { signal: this.#stop.signal }).catch(() => {});
    }
  }

  async #tooMuch(size: number): Promise<number> {
    const row = await this.#store.get(TRACE_COUNTERS.size);
    return Number(row?.value ?? 0) - size;
  }

  #arm(delay: number): void {
    if (this.#stop.signal.aborted) return;
    this.#timer = setTimeout(() => {
      this.#round = this.#watched().finally(() => this.#arm(this.#options.round ?? ROUND));
    }, delay);
    this.#timer.unref();
  }

  /** A store that cannot be used says so once. */
  async #watched(): Promise<void> {
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
