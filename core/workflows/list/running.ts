/** Executions that other processes run on a shared store: known by their open rows, their state by their journals. */
import { executionKey, indexedExecution, OPEN_EXECUTIONS } from "../../storage/keys.ts";
import type { Row, Store } from "../../storage/store.ts";
import type { Outline } from "../definition/definition.ts";
import type { ExecutionStart } from "../journal/entries.ts";
import { loadExecution } from "../journal/load.ts";
import { executionRecordText } from "../journal/record.ts";
import { parseOpenRow, parseRecordRow } from "../journal/rows.ts";

/** Rows read at once: each has the input of its execution. */
const PIECE = 100;

/** What tells whether a running execution is in a list, and where. */
export type ListedStart = Pick<ExecutionStart, "number" | "at" | "workflowId" | "userId" | "metadata">;

/** What other processes run. It is read as a whole, so that there is one look at a time, however many lists ask for it. */
export class RemoteExecutions {
  readonly #store: Store;
  readonly #here: () => { has(number: number): boolean };
  #looking: Promise<unknown> = Promise.resolve();
  #next: Promise<readonly ListedStart[]> | null = null;

  /** @param here numbers of what need not be looked for */
  constructor(store: Store, here: () => { has(number: number): boolean }) {
    this.#store = store;
    this.#here = here;
  }

  /** As it is after the call: a look that is under way may have passed what has begun since. */
  starts(): Promise<readonly ListedStart[]> {
    if (this.#next === null) {
      this.#next = this.#looking.then(() => {
        this.#next = null;
        return startsIn(this.#store, this.#here());
      });
      this.#looking = this.#next.catch(() => {});
    }
    return this.#next;
  }
}

async function startsIn(store: Store, known: { has(number: number): boolean }): Promise<ListedStart[]> {
  const starts: ListedStart[] = [];
  let before: string | undefined;
  for (;;) {
    const range = { prefix: OPEN_EXECUTIONS, reverse: true, limit: PIECE };
    const rows = await store.scan(before === undefined ? range : { ...range, before });
    const others = rows.filter(({ key }) => !known.has(indexedExecution(key)));
    const opened = others.map(({ value }) => parseOpenRow(value).start);
    const resumed = others.filter((_row, index) => opened[index] === null).map(({ key }) => indexedExecution(key));
    const records = await store.getMany(resumed.map(executionKey));
    for (const start of opened) if (start !== null) starts.push(begunOf(start));
    for (const record of records) if (record !== undefined) starts.push(begunOf(parseRecordRow(record.value).start));
    if (rows.length < PIECE) return starts;
    before = rows.at(-1)!.key;
  }
}

/** Without the input, which may be large. */
const begunOf = ({ number, at, workflowId, userId, metadata }: ExecutionStart): ListedStart => ({
  number,
  at,
  workflowId,
  userId,
  metadata,
});

/**
 * The record of an execution that another process runs, folded from its journal.
 *
 * @param record its record row, from before it was resumed
 * @returns null when neither row tells what it began with: it has gone meanwhile
 */
export async function remoteRecordText(
  store: Store,
  open: Row,
  record: Row | undefined,
  outlineOf: (hash: string) => Promise<Outline>,
): Promise<string | null> {
  const start = parseOpenRow(open.value).start ?? (record === undefined ? null : parseRecordRow(record.value).start);
  if (start === null) return null;
  const loaded = await loadExecution(store, { start, openRow: open, recordRow: record ?? null });
  return loaded === null ? null : executionRecordText(loaded.state, await outlineOf(start.definition));
}
