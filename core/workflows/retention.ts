/**
 * What happens to executions that are over for long: they go, in the background and a few at a time. Those that are suspended
 * never do.
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
import { Walk } from "./list/walk.ts";
import { removeEnded } from "./removal.ts";

/** Milliseconds: between two rounds, before the first one, and between two looks at how many there are. */
const ROUND = 60_000;
const FIRST = 5_000;
const LOOK = 1_000;

export interface ExecutionRetentionOptions {
  /** Milliseconds after their end, by workflow id. */
  readonly workflows: ReadonlyMap<string, number>;
  /** The same of workflows that are not served any more. */
  readonly otherwise: number;
  readonly logger: Logger;
  /** How many that have ended are kept at all, about: the oldest go. */
  readonly most?: number;
}

export class ExecutionRetention {
  readonly #store: Store;
  readonly #options: ExecutionRetentionOptions;
  /** By the prefix of a workflow's index rows. */
  readonly #kept: ReadonlyMap<string, number>;
  readonly #stop = new AbortController();
  readonly #timers = new Set<NodeJS.Timeout>();
  readonly #work = new Set<Promise<void>>();
  #failing = false;
  /** Where the sequence stood when there were no more than `most`. */
  #looked: string | undefined;

  constructor(store: Store, options: ExecutionRetentionOptions) {
    this.#store = store;
    this.#options = options;
    this.#kept = new Map([...options.workflows].map(([id, kept]) => [workflowIndex(id), kept]));
  }

  start(): void {
    this.#repeat(FIRST, ROUND, () => this.forget(Date.now()));
    const { most } = this.#options;
    if (most !== undefined) this.#repeat(LOOK, LOOK, () => this.#look(most));
  }

  async close(): Promise<void> {
    this.#stop.abort();
    for (const timer of this.#timers) clearTimeout(timer);
    await Promise.all(this.#work);
  }

  /** Removes what is over for too long at `now` (milliseconds since 1970). */
  async forget(now: number): Promise<void> {
    const store = this.#store;
    const { signal } = this.#stop;
    let after: string | undefined;
    while (!signal.aborted) {
      const range = { prefix: WORKFLOW_INDEXES, limit: 1 };
      const [row] = await store.scan(after === undefined ? range : { ...range, after });
      if (row === undefined) return;
      const index = workflowIndexOf(row.key);
      const ended = Math.floor(now - (this.#kept.get(index) ?? this.#options.otherwise));
      // What began later has not ended before.
      if (ended > 0) {
        for (const status of ENDED) {
          const prefix = `${index}${status}/`;
          await removeEnded(store, status, { prefix, before: prefix + encodeNumber(ended) }, ended, signal);
        }
      }
      after = afterWorkflow(index);
    }
  }

  /** Removes the oldest that have ended, down to `most`. */
  async trim(most: number): Promise<void> {
    const walk = new Walk(
      this.#store,
      ENDED.map((status) => ({ prefix: executionIndex(status) })),
    );
    await walk.pass(most);
    const [newest] = await walk.next(1);
    if (newest === undefined) return;
    for (const status of ENDED) {
      const prefix = executionIndex(status);
      const before = `${prefix}${newest.entry}~`;
      await removeEnded(this.#store, status, { prefix, before }, Number.POSITIVE_INFINITY, this.#stop.signal);
    }
  }

  /** Counting costs more than a look at the sequence: what has begun since tells whether there may be more. */
  async #look(most: number): Promise<void> {
    const begun = (await this.#store.get(EXECUTION_SEQUENCE))?.value;
    if (begun === this.#looked) return;
    await this.trim(most);
    this.#looked = begun;
  }

  #repeat(first: number, period: number, work: () => Promise<void>): void {
    if (this.#stop.signal.aborted) return;
    const timer = setTimeout(() => {
      this.#timers.delete(timer);
      const done = this.#watched(work).finally(() => {
        this.#work.delete(done);
        this.#repeat(period, period, work);
      });
      this.#work.add(done);
    }, first);
    timer.unref();
    this.#timers.add(timer);
  }

  /** A store that cannot be used says so once. */
  async #watched(work: () => Promise<void>): Promise<void> {
    try {
      await work();
      this.#failing = false;
    } catch (error) {
      const message = `executions that are over cannot be removed: ${messageOf(error)}`;
      if (!this.#failing) this.#options.logger.warn({ err: error }, message);
      this.#failing = true;
    }
  }
}
