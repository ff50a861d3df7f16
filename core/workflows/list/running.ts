/** Executions that other processes of a shared store run, read from their open rows and journals. */
import { executionKey, indexedExecution, OPEN_EXECUTIONS } from "../../storage/keys.ts";
import { allRows, rowsOf } from "../../storage/ranges.ts";
import type { Row, Store } from "../../storage/store.ts";
import type { Outline } from "../definition/definition.ts";
import type { CompactText } from "../journal/compact-text.ts";
import { type ExecutionStart, parseOpenRow, parseRecordRow } from "../journal/entries.ts";
import { foundExecution, loadExecution } from "../journal/load.ts";
import { executionRecord } from "../journal/record.ts";

/** Open rows read at once; each may hold the whole input of its execution. */
const ROWS_PER_READ = 100;

/** The part of the start that decides whether an execution is in a list, and where. */
export type ListedStart = Pick<ExecutionStart, "number" | "at" | "workflowId" | "userId" | "metadata">;

/** Reads the executions that other processes run. That takes a full scan, so simultaneous lists share one. */
export class RemoteExecutions {
  readonly #store: Store;
  readonly #liveNumbers: () => { has(number: number): boolean };
  #reading: Promise<unknown> = Promise.resolve();
  #next: Promise<readonly ListedStart[]> | null = null;

  /** @param liveNumbers numbers of the executions that run in this process */
  constructor(store: Store, liveNumbers: () => { has(number: number): boolean }) {
    this.#store = store;
    this.#liveNumbers = liveNumbers;
  }

  /** Waits for a scan that starts after the call: one that is in progress may have missed executions that have started since. */
  starts(): Promise<readonly ListedStart[]> {
    if (this.#next === null) {
      this.#next = this.#reading.then(() => {
        this.#next = null;
        return readStarts(this.#store, this.#liveNumbers());
      });
      this.#reading = this.#next.catch(() => {});
    }
    return this.#next;
  }
}

async function readStarts(store: Store, known: { has(number: number): boolean }): Promise<ListedStart[]> {
  const starts: ListedStart[] = [];
  const newestFirst = { prefix: OPEN_EXECUTIONS, reverse: true };
  for await (const rows of allRows(store, newestFirst, ROWS_PER_READ)) {
    const others = rows.filter(({ key }) => !known.has(indexedExecution(key)));
    const opened = others.map(({ value }) => parseOpenRow(value).start);
    const resumed = others.filter((_row, index) => opened[index] === null).map(({ key }) => indexedExecution(key));
    for (const start of opened) if (start !== null) starts.push(withoutInput(start));
    for await (const records of rowsOf(store, resumed.map(executionKey)))
      for (const record of records) starts.push(withoutInput(parseRecordRow(record.value).start));
  }
  return starts;
}

/** Drops the input, which may be large. */
const withoutInput = ({ number, at, workflowId, userId, metadata }: ExecutionStart): ListedStart => ({
  number,
  at,
  workflowId,
  userId,
  metadata,
});

/**
 * The record of an execution that another process runs, computed from its journal.
 *
 * @param record its record row from before it was resumed
 * @returns null when neither row has the start, because the execution has been removed meanwhile
 */
export async function remoteRecord(
  store: Store,
  open: Row,
  record: Row | undefined,
  outlineOf: (hash: string) => Promise<Outline>,
): Promise<CompactText | null> {
  const found = foundExecution(open, record);
  const loaded = found && (await loadExecution(store, found));
  return loaded && executionRecord(loaded.state, await outlineOf(loaded.state.start.definition));
}
