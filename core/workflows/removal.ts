/** Removes ended executions from the store: their rows, and the index rows and ids that lead to them. */
import { unlessConflict } from "../storage/conflict.ts";
import { executionKey, executionRows, indexedExecution } from "../storage/keys.ts";
import { pagesInBackground } from "../storage/ranges.ts";
import type { Commit, Range, Row, Store } from "../storage/store.ts";
import type { ExecutionStatus } from "./journal/entries.ts";
import { chosenIdKey, parseOwnId } from "./journal/ids.ts";
import { indexKeys } from "./journal/index-rows.ts";
import { recordHead } from "./journal/rows.ts";

const ROWS_PER_COMMIT = 50;

/**
 * Removes those of a range of index rows that ended before a time (milliseconds since 1970), a page at a time, until the signal
 * aborts.
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
    if (ended.length === 0) continue;
    const records = await store.getMany(ended.map(({ key }) => executionKey(indexedExecution(key))));
    await unlessConflict(store.commit(removalCommit(status, ended, records)));
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
