/**
 * Removes executions in the background, a few at a time, when they have ended longer ago than their workflow keeps them. Suspended
 * executions are never removed.
 */
import type { Logger } from "pino";
import { messageOf } from "../lib/errors.ts";
import { encodeNumber } from "../storage/encoding.ts";
import {
  afterWorkflow,
  EXECUTION_SEQUENCE,
  executionIndex,
  WORKFLOW_INDEXES,
  workflowIndex,
  workflowIndexOf,
} from "../storage/keys.ts";
import type { Store } from "../storage/store.ts";
import { ENDED } from "./journal/index-rows.ts";
import { IndexWalk } from "./list/walk.ts";
import { removeEnded } from "./removal.ts";

const FIRST_ROUND_AFTER_MS = 5_000;
const ROUND_INTERVAL_MS = 60_000;
const COUNT_INTERVAL_MS = 1_000;

interface ExecutionRetentionOptions {
  /** How many milliseconds after their end executions are kept, by workflow id. */
  readonly workflows: ReadonlyMap<string, number>;
  /** The same for workflows that the manifest does not have any more. */
  readonly otherWorkflows: number;
  readonly logger: Logger;
  /** About how many ended executions are kept at all; the oldest are removed. */
  readonly maxEnded?: number;
}

export class ExecutionRetention {
  readonly #store: Store;
  readonly #options: ExecutionRetentionOptions;
  /** Retention periods by the prefix of the index rows of a workflow. */
  readonly #periods: ReadonlyMap<string, number>;
  readonly #stop = new AbortController();
  readonly #timers = new Set<NodeJS.Timeout>();
  readonly #work = new Set<Promise<void>>();
  #failing = false;
  /** The execution sequence when there were at last no more than `maxEnded`. */
  #checkedSequence: string | undefined;

  constructor(store: Store, options: ExecutionRetentionOptions) {
    this.#store = store;
    this.#options = options;
    this.#periods = new Map([...options.workflows].map(([id, kept]) => [workflowIndex(id), kept]));
  }

  start(): void {
    this.#repeat(FIRST_ROUND_AFTER_MS, ROUND_INTERVAL_MS, () => this.removeExpired(Date.now()));
    const { maxEnded } = this.#options;
    if (maxEnded !== undefined) this.#repeat(COUNT_INTERVAL_MS, COUNT_INTERVAL_MS, () => this.#removeSurplus(maxEnded));
  }

  async close(): Promise<void> {
    this.#stop.abort();
    for (const timer of this.#timers) clearTimeout(timer);
    await Promise.all(this.#work);
  }

  /** Removes what has been kept long enough at `now` (milliseconds since 1970). */
  async removeExpired(now: number): Promise<void> {
    const store = this.#store;
    const { signal } = this.#stop;
    let after: string | undefined;
    while (!signal.aborted) {
      const range = { prefix: WORKFLOW_INDEXES, limit: 1 };
      const [row] = await store.scan(after === undefined ? range : { ...range, after });
      if (row === undefined) return;
      const index = workflowIndexOf(row.key);
      const ended = Math.floor(now - (this.#periods.get(index) ?? this.#options.otherWorkflows));
      // Index rows are ordered by begin: an execution that began after this time has not ended before it.
      if (ended > 0) {
        for (const status of ENDED) {
          const prefix = `${index}${status}/`;
          await removeEnded(store, status, { prefix, before: prefix + encodeNumber(ended) }, ended, signal);
        }
      }
      after = afterWorkflow(index);
    }
  }

  /** Removes the oldest ended executions down to `maxEnded`. */
  async removeOldest(maxEnded: number): Promise<void> {
    const walk = new IndexWalk(
      this.#store,
      ENDED.map((status) => ({ prefix: executionIndex(status) })),
    );
    await walk.skip(maxEnded);
    const [newest] = await walk.next(1);
    if (newest === undefined) return;
    for (const status of ENDED) {
      const prefix = executionIndex(status);
      const before = `${prefix}${newest.entry}~`;
      await removeEnded(this.#store, status, { prefix, before }, Number.POSITIVE_INFINITY, this.#stop.signal);
    }
  }

  /** Counts only when the sequence has changed, which is one read: otherwise no execution has begun since the last time. */
  async #removeSurplus(maxEnded: number): Promise<void> {
    const begun = (await this.#store.get(EXECUTION_SEQUENCE))?.value;
    if (begun === this.#checkedSequence) return;
    await this.removeOldest(maxEnded);
    this.#checkedSequence = begun;
  }

  #repeat(first: number, period: number, work: () => Promise<void>): void {
    if (this.#stop.signal.aborted) return;
    const timer = setTimeout(() => {
      this.#timers.delete(timer);
      const done = this.#logFirstFailure(work).finally(() => {
        this.#work.delete(done);
        this.#repeat(period, period, work);
      });
      this.#work.add(done);
    }, first);
    timer.unref();
    this.#timers.add(timer);
  }

  /** While a store is unavailable, only the first failure is logged. */
  async #logFirstFailure(work: () => Promise<void>): Promise<void> {
    try {
      await work();
      this.#failing = false;
    } catch (error) {
      const message = `ended executions cannot be removed: ${messageOf(error)}`;
      if (!this.#failing) this.#options.logger.warn({ err: error }, message);
      this.#failing = true;
    }
  }
}
