/** Taking executions that have ended out of the store: their rows, and what leads to them. */
import { setTimeout as sleep } from "node:timers/promises";
import { CommitConflict } from "../lib/errors.ts";
import { executionKey, executionRows, indexedExecution } from "../storage/keys.ts";
import { isVolatile } from "../storage/sharing.ts";
import type { Commit, Range, Row, Store } from "../storage/store.ts";
import type { ExecutionStatus } from "./journal/entries.ts";
import { chosenIdKey, parseOwnId } from "./journal/ids.ts";
import { indexKeys } from "./journal/index-rows.ts";
import { recordHead } from "./journal/rows.ts";

const BATCH = 50;
/** Milliseconds between two batches. */
const PAUSE = 20;

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
    const rows = await store.scan({ ...range, limit: BATCH, ...(after !== undefined && { after }) });
    const over = rows.filter(({ value }) => Number(value) < time);
    if (over.length > 0) await removeAll(store, status, over);
    if (rows.length < BATCH) return;
    after = rows.at(-1)!.key;
    // Nothing waits for a disk there, and executions may come as fast as they go.
    if (isVolatile(store)) await new Promise(setImmediate);
    else if (over.length > 0) await sleep(PAUSE, undefined, { signal }).catch(() => {});
  }
}

async function removeAll(store: Store, status: ExecutionStatus, found: readonly Row[]): Promise<void> {
  const records = await store.getMany(found.map(({ key }) => executionKey(indexedExecution(key))));
  try {
    await store.commit(removalOf(status, found, records));
  } catch (error) {
    // Another process was first: it has done the same.
    if (!(error instanceof CommitConflict)) throw error;
  }
}

function removalOf(status: ExecutionStatus, found: readonly Row[], records: readonly (Row | undefined)[]): Commit {
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
