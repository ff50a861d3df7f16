/**
 * Removes ended executions in the background, a few at a time, once the retention period of their workflow is over. Suspended
 * executions are never removed.
 */
import type { Logger } from "pino";
import { messageOf } from "../lib/errors.ts";
import { Interval } from "../lib/interval.ts";
import {
  EXECUTION_SEQUENCE,
  EXECUTIONS,
  encodeNumber,
  executionKey,
  executionRows,
  indexedEntry,
  indexedExecution,
  WORKFLOW_INDEXES,
  workflowIndex,
} from "../storage/keys.ts";
import { excessBytes } from "../storage/memory-shares.ts";
import { groupsBelow, pagesInBackground, rowsOf } from "../storage/ranges.ts";
import { type Commit, type Range, type Row, type Store, unlessConflict } from "../storage/store.ts";
import { chosenIdKey, type ExecutionStatus, parseOwnId, type RecordHead, recordHead } from "./journal/entries.ts";
import { ENDED, indexKeys } from "./journal/index-rows.ts";
import { IndexWalk } from "./list/walk.ts";

const ROWS_PER_COMMIT = 50;

/**
 * Removes the executions of a range of index rows that ended before a time (milliseconds since 1970), a page at a time, until the
 * signal aborts: their rows, and the index rows and ids that lead to them.
 */
export async function removeEnded(
  store: Store,
  status: ExecutionStatus,
  range: Pick<Range, "prefix" | "before">,
  time: number,
  signal: AbortSignal,
): Promise<void> {
  for await (const rows of pagesInBackground(store, range, ROWS_PER_COMMIT, signal)) {
    const ended = rows.filter(({ value }) => Number(value) < time);
    const left = new Map(ended.map(({ key }) => [executionKey(indexedExecution(key)), key]));
    for await (const records of rowsOf(store, [...left.keys()])) {
      await unlessConflict(store.commit(removalCommit(status, records)));
      for (const { key } of records) left.delete(key);
    }
    // Removes index rows whose execution no longer exists.
    if (left.size === 0) continue;
    const expect = [...left.keys()].map((key): [string, null] => [key, null]);
    await unlessConflict(store.commit({ delete: [...left.values()], expect }));
  }
}

function removalCommit(status: ExecutionStatus, records: readonly Row[]): Commit {
  const clear: string[] = [];
  const removed: string[] = [];
  const of: RecordHead[] = [];
  for (const { value } of records) {
    const head = recordHead(value);
    of.push(head);
    clear.push(executionRows(head.number));
    removed.push(...indexKeys(head, status));
    if (parseOwnId(head.id) !== head.number) removed.push(chosenIdKey(head));
  }
  return { clear, delete: removed, of, expect: records.map(({ key, revision }) => [key, revision]) };
}

const FIRST_ROUND_AFTER_MS = 5_000;
const ROUND_INTERVAL_MS = 60_000;
/** Short, because executions that end within it exceed the bound. */
const COUNT_INTERVAL_MS = 250;
/** How many of the oldest executions are read to find enough bytes to remove. */
const OLDEST_PER_LOOK = 256;

interface RetentionPeriods {
  /** Milliseconds that ended executions are kept, by workflow id. */
  readonly workflows: ReadonlyMap<string, number>;
  /** The same for workflows that the manifest does not have any more. */
  readonly otherWorkflows: number;
}

interface ExecutionRetentionOptions extends RetentionPeriods {
  readonly logger: Logger;
  /** About how many ended executions are kept at all, and no more than `memory:` has room for; the oldest are removed. */
  readonly maxEnded?: number;
  /** Told after every look whether they fit. Where they do not, there is none left that has ended. */
  readonly fits?: (fit: boolean) => void;
}

export class ExecutionRetention {
  readonly #store: Store;
  /** Retention periods by the prefix of the index rows of a workflow. */
  #periods!: ReadonlyMap<string, number>;
  #otherWorkflows!: number;
  readonly #expiry: Interval;
  readonly #surplus: Interval | null;
  /** The execution sequence when there were last no more than `maxEnded`. */
  #checkedSequence: string | undefined;

  constructor(store: Store, options: ExecutionRetentionOptions) {
    this.#store = store;
    this.adopt(options);
    const failed = (error: unknown) =>
      options.logger.warn({ err: error }, `ended executions cannot be removed: ${messageOf(error)}`);
    this.#expiry = new Interval(ROUND_INTERVAL_MS, () => this.removeExpired(Date.now()), failed);
    const { maxEnded } = options;
    const removeSurplus = async (count: number) => {
      await this.#removeSurplus(count);
      await this.removeBytes(this.#held() - excessBytes(this.#store, "executions"));
      options.fits?.(excessBytes(this.#store, "executions") <= 0 || (await this.#oldestEntries()).length > 0);
    };
    this.#surplus =
      maxEnded === undefined ? null : new Interval(COUNT_INTERVAL_MS, () => removeSurplus(maxEnded), failed);
  }

  /** Uses these periods from the next round on. */
  adopt({ workflows, otherWorkflows }: RetentionPeriods): void {
    this.#periods = new Map([...workflows].map(([id, kept]) => [workflowIndex(id), kept]));
    this.#otherWorkflows = otherWorkflows;
  }

  start(): void {
    this.#expiry.start(FIRST_ROUND_AFTER_MS);
    this.#surplus?.start();
  }

  async close(): Promise<void> {
    await Promise.all([this.#expiry.stop(), this.#surplus?.stop()]);
  }

  /** Removes executions whose retention period is over at `now` (milliseconds since 1970). */
  async removeExpired(now: number): Promise<void> {
    const store = this.#store;
    const { signal } = this.#expiry;
    for await (const index of groupsBelow(store, WORKFLOW_INDEXES)) {
      const ended = Math.floor(now - (this.#periods.get(index) ?? this.#otherWorkflows));
      // Index rows are ordered by start: an execution that started after this time has not ended before it.
      if (ended <= 0) continue;
      for (const status of ENDED) {
        const prefix = `${index}${status}/`;
        await removeEnded(store, status, { prefix, before: prefix + encodeNumber(ended) }, ended, signal);
      }
      if (signal.aborted) return;
    }
  }

  /** Removes the oldest ended executions down to `maxEnded`. */
  async removeOldest(maxEnded: number): Promise<void> {
    const walk = new IndexWalk(this.#store, await this.#endedIndexes());
    await walk.skip(maxEnded);
    const [newest] = await walk.next(1);
    if (newest !== undefined) await this.#removeUpTo(newest.entry);
  }

  /** Removes the oldest ended executions until all that are kept take about `maxBytes`, or no ended one is left. */
  async removeBytes(maxBytes: number): Promise<void> {
    const store = this.#store;
    const excess = () => this.#held() - maxBytes;
    let removed: string | undefined;
    for (let left = excess(); left > 0; left = excess()) {
      const oldest = await this.#oldestEntries();
      const records = await store.getMany(oldest.map((entry) => executionKey(indexedExecution(entry))));
      let count = 0;
      for (let freed = 0; freed < left && count < records.length; count++) freed += records[count]?.value.length ?? 0;
      const last = oldest[count - 1];
      // One that could not be removed is found again.
      if (last === undefined || last === removed || this.#expiry.signal.aborted) return;
      await this.#removeUpTo(last);
      removed = last;
    }
  }

  /** Without the rows by which they are found. */
  #held(): number {
    return this.#store.held?.(EXECUTIONS) ?? 0;
  }

  /** Of each workflow, and of each agent, whose runs are in no list of all executions. */
  async #endedIndexes(): Promise<{ prefix: string; status: ExecutionStatus }[]> {
    const indexes: { prefix: string; status: ExecutionStatus }[] = [];
    for await (const index of groupsBelow(this.#store, WORKFLOW_INDEXES))
      indexes.push(...ENDED.map((status) => ({ prefix: `${index}${status}/`, status })));
    return indexes;
  }

  /** Of those that have ended. */
  async #oldestEntries(): Promise<string[]> {
    const indexes = await this.#endedIndexes();
    const pages = await Promise.all(indexes.map(({ prefix }) => this.#store.scan({ prefix, limit: OLDEST_PER_LOOK })));
    const entries = pages.flat().map(({ key }) => indexedEntry(key));
    return entries.sort().slice(0, OLDEST_PER_LOOK);
  }

  async #removeUpTo(entry: string): Promise<void> {
    for (const { prefix, status } of await this.#endedIndexes()) {
      const before = `${prefix}${entry}~`;
      await removeEnded(this.#store, status, { prefix, before }, Number.POSITIVE_INFINITY, this.#expiry.signal);
    }
  }

  /** Counts only when the sequence has changed, which is one read: otherwise no execution has started since the last time. */
  async #removeSurplus(maxEnded: number): Promise<void> {
    const begun = (await this.#store.get(EXECUTION_SEQUENCE))?.value;
    if (begun === this.#checkedSequence) return;
    await this.removeOldest(maxEnded);
    this.#checkedSequence = begun;
  }
}
