/** All rows of a store, whatever they are: of an empty one there are none. */
import { PROCESSES } from "./keys.ts";
import { allRows } from "./ranges.ts";
import type { Commit, Row, Store } from "./store.ts";

/** Every key begins with a visible character of ASCII, and a range needs a prefix. */
const PREFIXES = Array.from({ length: 0x7f - 0x21 }, (_, index) => String.fromCharCode(0x21 + index));

const ROWS_PER_READ = 500;

/** In the order of their keys, in bounded memory. */
export async function* everyRow(store: Store): AsyncGenerator<Row, void> {
  for (const prefix of PREFIXES) for await (const rows of allRows(store, { prefix }, ROWS_PER_READ)) yield* rows;
}

export async function isEmpty(store: Store): Promise<boolean> {
  const first = await Promise.all(PREFIXES.map((prefix) => store.scan({ prefix, limit: 1 })));
  return first.every((rows) => rows.length === 0);
}

/** Deletes all rows but one, a little at a time. @param commit makes each of the commits */
export async function clearAllBut(
  store: Store,
  kept: string,
  commit: (changes: Commit) => Promise<unknown>,
): Promise<void> {
  for (const prefix of PREFIXES) {
    for (let range: { prefix: string; after?: string } = { prefix }; ; ) {
      const rows = await store.scan({ ...range, limit: ROWS_PER_READ, longest: 0 });
      const last = rows.at(-1);
      if (last === undefined) break;
      await commit({ delete: rows.map(({ key }) => key).filter((key) => key !== kept) });
      range = { prefix, after: last.key };
    }
  }
}

/** The signs of life of processes that share the store, those of dead ones too. */
export const signsOfLife = (store: Store): Promise<Row[]> => store.scan({ prefix: PROCESSES, limit: 1_000 });
