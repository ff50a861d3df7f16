/** Walking ranges of rows piece by piece, so that no query is long and nothing large is held. */
import type { Range, Row, Store } from "./store.ts";

const PIECE = 1000;
/** Rows that one query passes over. */
const SKIP = 50_000;

/** All rows of a prefix. */
export async function* allRows(store: Store, prefix: string, piece = PIECE): AsyncGenerator<Row[]> {
  let after: string | undefined;
  for (;;) {
    const rows = await store.scan({ prefix, limit: piece, ...(after !== undefined && { after }) });
    if (rows.length > 0) yield rows;
    if (rows.length < piece) return;
    after = rows.at(-1)!.key;
  }
}

/** The rows after the first `offset` of a prefix: what is passed over costs time in the engine, but is not carried here. */
export async function rowsAt(
  store: Store,
  { prefix, reverse, limit }: Pick<Range, "prefix" | "limit"> & { reverse: boolean },
  offset: number,
): Promise<Row[]> {
  let bound: { after?: string; before?: string } = {};
  let left = offset;
  while (left > SKIP) {
    const [last] = await store.scan({ prefix, reverse, limit: 1, skip: SKIP - 1, ...bound });
    if (last === undefined) return [];
    bound = reverse ? { before: last.key } : { after: last.key };
    left -= SKIP;
  }
  return store.scan({ prefix, reverse, limit, skip: left, ...bound });
}
