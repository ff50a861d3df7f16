/** Removes ended executions from the store: their rows, and the index rows and ids that lead to them. */
import { unlessConflict } from "../storage/conflict.ts";
import { executionKey, executionRows, indexedExecution } from "../storage/keys.ts";
import { rowsOf } from "../storage/large-rows.ts";
import { pagesInBackground } from "../storage/ranges.ts";
import type { Commit, Range, Row, Store } from "../storage/store.ts";
import type { ExecutionStatus } from "./journal/entries.ts";
import { chosenIdKey, parseOwnId } from "./journal/ids.ts";
import { indexKeys } from "./journal/index-rows.ts";
import { type RecordHead, recordHead } from "./journal/rows.ts";

const ROWS_PER_COMMIT = 50;

/**
 * Removes the executions of a range of index rows that ended before a time (milliseconds since 1970), a page at a time, until the
 * signal aborts.
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
