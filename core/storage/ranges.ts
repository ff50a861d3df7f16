/** Walks ranges of rows in pages, so that no query takes long and little is held in memory, however large the rows are. */
import { setTimeout as sleep } from "node:timers/promises";
import { longestOfMany, wholeRows } from "./large-rows.ts";
import { isVolatile } from "./sharing.ts";
import type { Range, Row, Store } from "./store.ts";

const ROWS_PER_READ = 1000;
/** Takes an engine a few milliseconds, which is how long others wait for it. */
export const MAX_ROWS_SKIPPED_PER_QUERY = 10_000;
/** Between two pages of work in the background, so that it does not keep the store busy. */
const PAUSE_BETWEEN_PAGES_MS = 20;

type Pages = Omit<Range, "limit" | "skip">;

/** All rows of a range, at most `limit` of them at a time, and fewer where they are large. */
export async function* allRows(store: Store, range: Pages, limit = ROWS_PER_READ): AsyncGenerator<Row[], void> {
  for (let rest: Pages | null = range; rest !== null; ) {
    const rows: Row[] = await store.scan({ ...rest, limit, longest: longestOfMany(limit) });
    yield* wholeRows(store, rows);
    rest = rows.length < limit ? null : rangeBehind(range, rows.at(-1)!);
  }
}

/**
 * The same for work in the background, such as removing what is too old: others use the store between two pages, and there is no
 * further page once the signal has aborted.
 */
export async function* pagesInBackground(
  store: Store,
  range: Pages,
  limit: number,
  signal: AbortSignal,
): AsyncGenerator<Row[], void> {
  for (let rest = range; !signal.aborted; ) {
    const rows = await store.scan({ ...rest, limit, longest: longestOfMany(limit), background: true });
    for await (const whole of wholeRows(store, rows)) {
      yield whole;
      if (signal.aborted) return;
    }
    if (rows.length < limit) return;
    rest = rangeBehind(range, rows.at(-1)!);
    // In memory there is no disk to spare, and new rows may come as fast as old ones are removed.
    if (isVolatile(store)) await new Promise(setImmediate);
    else await sleep(PAUSE_BETWEEN_PAGES_MS, undefined, { signal }).catch(() => {});
  }
}

const rangeBehind = (range: Pages, { key }: Row): Pages => ({ ...range, [range.reverse ? "before" : "after"]: key });

/** Prefixes of the groups of rows below a prefix, by the part of their keys that follows; the rows are not read. */
export async function* groupsBelow(store: Store, prefix: string): AsyncGenerator<string, void> {
  for (let range: Pages = { prefix }; ; ) {
    const [row] = await store.scan({ ...range, limit: 1, longest: 0 });
    if (row === undefined) return;
    const group = row.key.slice(0, row.key.indexOf("/", prefix.length) + 1);
    yield group;
    range = { prefix, after: `${group}~` };
  }
}

/** The rows after the first `offset` of a prefix. */
export const rowsAt = (
  store: Store,
  range: Pick<Range, "prefix" | "limit"> & { reverse: boolean },
  offset: number,
): Promise<Row[]> => scanInSlices((slice) => store.scan(slice), { ...range, skip: offset });

/** Skips rows a slice at a time, so that other reads have their turn in between. They cost time in the engine, but are not transferred. */
export async function scanInSlices(scan: (slice: Range) => Promise<Row[]>, range: Range): Promise<Row[]> {
  let rest = range;
  for (let skip = range.skip ?? 0; skip > MAX_ROWS_SKIPPED_PER_QUERY; skip -= MAX_ROWS_SKIPPED_PER_QUERY) {
    const [last] = await scan({ ...rest, limit: 1, skip: MAX_ROWS_SKIPPED_PER_QUERY - 1, longest: 0 });
    if (last === undefined) return [];
    rest = { ...rangeBehind(rest, last), limit: range.limit, skip: skip - MAX_ROWS_SKIPPED_PER_QUERY };
  }
  return scan(rest);
}
