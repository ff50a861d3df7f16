/** Removes ended executions from the store: their rows, and the index rows and ids that lead to them. */
import { setTimeout as sleep } from "node:timers/promises";
import { CommitConflict } from "../lib/errors.ts";
import { executionKey, executionRows, indexedExecution } from "../storage/keys.ts";
import { isVolatile } from "../storage/sharing.ts";
import type { Commit, Range, Row, Store } from "../storage/store.ts";
import type { ExecutionStatus } from "./journal/entries.ts";
import { chosenIdKey, parseOwnId } from "./journal/ids.ts";
import { indexKeys } from "./journal/index-rows.ts";
import { recordHead } from "./journal/rows.ts";

const ROWS_PER_BATCH = 50;
const PAUSE_BETWEEN_BATCHES_MS = 20;

/**
 * Removes those of a range of index rows that ended before a time (milliseconds since 1970), a few at a time, until the signal
 * aborts.
 */
export async function removeEnded(
  store: Store,
  status: ExecutionStatus,
  range: Pick<Range, "prefix" | "before">,
  time: number,
  signal: AbortSignal,
): Promise<void> {
  let after: string | undefined;
  while (!signal.aborted) {
    const rows = await store.scan({ ...range, limit: ROWS_PER_BATCH, ...(after !== undefined && { after }) });
    const ended = rows.filter(({ value }) => Number(value) < time);
    if (ended.length > 0) await removeAll(store, status, ended);
    if (rows.length < ROWS_PER_BATCH) return;
    after = rows.at(-1)!.key;
    // In memory there is no disk to spare, and new executions may end as fast as old ones are removed.
    if (isVolatile(store)) await new Promise(setImmediate);
    else if (ended.length > 0) await sleep(PAUSE_BETWEEN_BATCHES_MS, undefined, { signal }).catch(() => {});
  }
}

async function removeAll(store: Store, status: ExecutionStatus, found: readonly Row[]): Promise<void> {
  const records = await store.getMany(found.map(({ key }) => executionKey(indexedExecution(key))));
  try {
    await store.commit(removalCommit(status, found, records));
  } catch (error) {
    // Another process has removed the same.
    if (!(error instanceof CommitConflict)) throw error;
  }
}

function removalCommit(status: ExecutionStatus, found: readonly Row[], records: readonly (Row | undefined)[]): Commit {
  const clear: string[] = [];
  const removed: string[] = [];
  const expect: [string, number | null][] = [];
  found.forEach(({ key }, index) => {
    const number = indexedExecution(key);
    const record = records[index];
    expect.push([executionKey(number), record?.revision ?? null]);
    if (record === undefined) {
      // An index row that leads nowhere.
      removed.push(key);
      return;
    }
    const head = recordHead(record.value);
    clear.push(executionRows(number));
    removed.push(...indexKeys(head, status));
    if (parseOwnId(head.id) !== number) removed.push(chosenIdKey(head));
  });
  return { clear, delete: removed, expect };
}
