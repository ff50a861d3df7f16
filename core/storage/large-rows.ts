/**
 * Large rows are measured first, and read when it is their turn: a few at a time in the whole process, however many readers there are
 * and whatever they ask for. A queue of readers instead would let a slow one stop the others.
 */
import { createTurns } from "../lib/turns.ts";
import { groupsOf } from "./bounded-reader.ts";
import type { Row, Store } from "./store.ts";

/** Bytes of rows that are read at once. One row may have more. */
export const BYTES_PER_READ = 512 * 1024;

/** Reads of so many bytes that are under way at once. */
const READS_AT_ONCE = 2;

/** To be used for each read of large rows. */
export const inTurn = createTurns(READS_AT_ONCE);

/** Bytes of a row, or at least its characters. */
export const sizeOf = ({ size, value }: Row): number => size ?? value.length;

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
    yield found.filter((row) => row !== undefined);
  }
}
