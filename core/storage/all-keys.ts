/** All rows of a store, whatever they are: of an empty one there are none. */
import { PROCESSES } from "./keys.ts";
import { allRows } from "./ranges.ts";
import type { Row, Store } from "./store.ts";

/** Every key begins with a visible character of ASCII, and a range needs a prefix. */
const PREFIXES = Array.from({ length: 0x7f - 0x21 }, (_, index) => String.fromCharCode(0x21 + index));

const ROWS_PER_READ = 500;
/** Longer values are read one by one: rows of one read are in memory together. */
const MAX_VALUE_BYTES = 16 * 1024;

/** In the order of their keys, in bounded memory. */
export async function* everyRow(store: Store): AsyncGenerator<Row, void> {
  for (const prefix of PREFIXES) {
    for await (const rows of allRows(store, { prefix, longest: MAX_VALUE_BYTES }, ROWS_PER_READ)) {
      for (const row of rows) {
        const whole = row.size === undefined ? row : await store.get(row.key);
        if (whole !== undefined) yield whole;
      }
    }
  }
}

export async function isEmpty(store: Store): Promise<boolean> {
  const first = await Promise.all(PREFIXES.map((prefix) => store.scan({ prefix, limit: 1 })));
  return first.every((rows) => rows.length === 0);
}

/** Deletes all rows but one, a little at a time. */
export async function clearAllBut(store: Store, kept: string): Promise<void> {
  for (const prefix of PREFIXES) {
    for await (const rows of allRows(store, { prefix, longest: 1 }, ROWS_PER_READ)) {
      await store.commit({ delete: rows.map(({ key }) => key).filter((key) => key !== kept) });
    }
  }
}

/** The signs of life of processes that share the store, those of dead ones too. */
export const signsOfLife = (store: Store): Promise<Row[]> => store.scan({ prefix: PROCESSES, limit: 1_000 });
