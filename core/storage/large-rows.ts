/**
 * Large rows are measured first, and read when it is their turn: a few at a time in the whole process, however many readers there are
 * and whatever they ask for. A queue of readers instead would let a slow one stop the others.
 */
import { between, joined, Serialized, SerializedStream } from "../lib/serialized.ts";
import { createTurns } from "../lib/turns.ts";
import { groupsOf } from "./bounded-reader.ts";
import type { Row, Store } from "./store.ts";

/** Bytes of rows that are read at once. One row may have more. */
export const BYTES_PER_READ = 512 * 1024;

/** Reads of so many bytes that are under way at once. */
const READS_AT_ONCE = 2;

/** To be used for each read of large rows. */
export const inTurn = createTurns(READS_AT_ONCE);

/** A row of more bytes is read alone with others of its kind, if many rows are read at once. */
const LARGE_ROW_BYTES = 16 * 1024;

/** Bytes of a row, or at least its characters. */
export const sizeOf = ({ size, value }: Row): number => size ?? value.length;

/** The longest value that a read of so many rows gives whole. */
export const longestOfMany = (rows: number): number =>
  Math.min(LARGE_ROW_BYTES, Math.ceil((4 * BYTES_PER_READ) / Math.max(1, rows)));

/** The rows that exist, as a read gives them that leaves the large ones to `wholeRows`. */
export async function measuredRows(store: Store, keys: readonly string[]): Promise<Row[]> {
  const rows = await store.getMany(keys, longestOfMany(keys.length));
  return rows.filter((row) => row !== undefined);
}

/** The rows that exist, whole and in consecutive groups. */
export async function* rowsOf(store: Store, keys: readonly string[]): AsyncGenerator<Row[], void> {
  yield* wholeRows(store, await measuredRows(store, keys));
}

/** Rows of which some are excerpts, whole and in consecutive groups. One that has been deleted since is left out. */
export async function* wholeRows(store: Store, rows: readonly Row[]): AsyncGenerator<Row[], void> {
  for (const group of groupsOf(rows, sizeOf, BYTES_PER_READ)) {
    const large = group.flatMap(({ key, size }) => (size === undefined ? [] : [key]));
    if (large.length === 0) {
      yield group;
      continue;
    }
    const read = (await inTurn(() => store.getMany(large))).values();
    const found = group.map((row) => (row.size === undefined ? row : read.next().value));
    const whole = found.filter((row) => row !== undefined);
    if (whole.length > 0) yield whole;
  }
}

/**
 * Rows as a list in a reply: joined when none is large, else read while the reply is sent.
 *
 * @param textOf JSON text of a row; null: the row turns out not to belong to the list
 */
export function rowsInReply(
  store: Store,
  rows: readonly Row[],
  begin: string,
  end: string,
  textOf: (value: string) => string | null = (value) => value,
): Serialized {
  const textsOf = (group: readonly Row[]) => group.map(({ value }) => textOf(value)).filter((text) => text !== null);
  if (rows.every(({ size }) => size === undefined)) return new Serialized(`${begin}${textsOf(rows).join()}${end}`);
  async function* texts(): AsyncGenerator<string[], void> {
    for await (const group of wholeRows(store, rows)) yield textsOf(group);
  }
  return new SerializedStream(between(begin, joined(texts()), end));
}
