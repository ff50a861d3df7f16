/** Walks ranges of rows in pieces, so that no query takes long and little is held in memory. */
import type { Range, Row, Store } from "./store.ts";

const ROWS_PER_READ = 1000;
const MAX_ROWS_SKIPPED_PER_QUERY = 50_000;

/** All rows of a prefix, at most `limit` of them at a time. */
export async function* allRows(store: Store, prefix: string, limit = ROWS_PER_READ): AsyncGenerator<Row[]> {
  let after: string | undefined;
  for (;;) {
    const rows = await store.scan({ prefix, limit, ...(after !== undefined && { after }) });
    if (rows.length > 0) yield rows;
    if (rows.length < limit) return;
    after = rows.at(-1)!.key;
  }
}

/** The rows after the first `offset` of a prefix. Skipped rows cost time in the engine, but are not transferred. */
export async function rowsAt(
  store: Store,
  { prefix, reverse, limit }: Pick<Range, "prefix" | "limit"> & { reverse: boolean },
  offset: number,
): Promise<Row[]> {
  let bound: { after?: string; before?: string } = {};
  let left = offset;
  while (left > MAX_ROWS_SKIPPED_PER_QUERY) {
    const [last] = await store.scan({ prefix, reverse, limit: 1, skip: MAX_ROWS_SKIPPED_PER_QUERY - 1, ...bound });
    if (last === undefined) return [];
    bound = reverse ? { before: last.key } : { after: last.key };
    left -= MAX_ROWS_SKIPPED_PER_QUERY;
  }
  return store.scan({ prefix, reverse, limit, skip: left, ...bound });
}
