/** Executions that other processes run on a shared store: known by their open rows, their state by their journals. */
import { executionKey, indexedExecution, OPEN_EXECUTIONS } from "../storage/keys.ts";
import type { Row, Store } from "../storage/store.ts";
import type { Outline } from "./definition.ts";
import type { Start } from "./journal.ts";
import { loadExecution } from "./load.ts";
import { recordText } from "./record.ts";
import { parseOpen, parseRest } from "./rows.ts";

/** Rows read at once. */
const PIECE = 200;

/** What every open execution began with, but for those in `known`. */
export async function startsElsewhere(store: Store, known: { has(number: number): boolean }): Promise<Start[]> {
  const starts: Start[] = [];
  let before: string | undefined;
  for (;;) {
    const range = { prefix: OPEN_EXECUTIONS, reverse: true, limit: PIECE };
    const rows = await store.scan(before === undefined ? range : { ...range, before });
    const others = rows.filter(({ key }) => !known.has(indexedExecution(key)));
    const opened = others.map(({ value }) => parseOpen(value).start);
    const resumed = others.filter((_row, index) => opened[index] === null).map(({ key }) => indexedExecution(key));
    const records = await store.getMany(resumed.map(executionKey));
    for (const start of opened) if (start !== null) starts.push(start);
    for (const record of records) if (record !== undefined) starts.push(parseRest(record.value).start);
    if (rows.length < PIECE) return starts;
    before = rows.at(-1)!.key;
  }
}

/**
 * The record of an execution that another process runs, folded from its journal.
 *
 * @param record its record row, from before it was resumed
 * @returns null when neither row tells what it began with: it has gone meanwhile
 */
export async function openRecord(
  store: Store,
  open: Row,
  record: Row | undefined,
  outlineOf: (hash: string) => Promise<Outline>,
): Promise<string | null> {
  const start = parseOpen(open.value).start ?? (record === undefined ? null : parseRest(record.value).start);
  if (start === null) return null;
  const loaded = await loadExecution(store, { start, open, rest: record ?? null });
  return loaded === null ? null : recordText(loaded.fold, await outlineOf(start.definition));
}
