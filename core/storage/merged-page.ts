/** A page of several sorted ranges, merged into one order. */
import type { Store } from "./store.ts";

const MIN_ROWS_PER_READ = 16;
const MAX_ROWS_PER_READ = 256;

interface Cursor {
  readonly prefix: string;
  keys: string[];
  next: number;
  /** The store has no more rows. */
  ended: boolean;
}

interface MergeOptions {
  readonly reverse: boolean;
  readonly limit: number;
  readonly offset: number;
}

/**
 * The keys of one page of all ranges together, sorted by what follows their prefixes. It reads a little of each range, and
 * everything that comes before the page.
 */
export async function mergedPage(store: Store, prefixes: readonly string[], options: MergeOptions): Promise<string[]> {
  const { reverse, limit, offset } = options;
  const end = offset + limit;
  const piece = Math.min(
    MAX_ROWS_PER_READ,
    end,
    Math.max(MIN_ROWS_PER_READ, Math.ceil((2 * end) / Math.max(1, prefixes.length))),
  );
  const cursors = await Promise.all(
    prefixes.map(async (prefix): Promise<Cursor> => {
      const cursor = { prefix, keys: [], next: 0, ended: false };
      await refill(store, cursor, reverse, piece);
      return cursor;
    }),
  );
  const left = cursors.filter((cursor) => cursor.keys.length > 0);
  const page: string[] = [];
  for (let index = 0; index < end && left.length > 0; index++) {
    const at = nextCursor(left, reverse);
    const cursor = left[at]!;
    const key = cursor.keys[cursor.next++]!;
    if (index >= offset) page.push(key);
    if (cursor.next === cursor.keys.length && index + 1 < end) await refill(store, cursor, reverse, MAX_ROWS_PER_READ);
    if (cursor.next === cursor.keys.length) left.splice(at, 1);
  }
  return page;
}

async function refill(store: Store, cursor: Cursor, reverse: boolean, limit: number): Promise<void> {
  if (cursor.ended) return;
  const last = cursor.keys.at(-1);
  const bound = last === undefined ? {} : reverse ? { before: last } : { after: last };
  const rows = await store.scan({ prefix: cursor.prefix, reverse, limit, ...bound });
  cursor.keys = rows.map((row) => row.key);
  cursor.next = 0;
  cursor.ended = rows.length < limit;
}

/** There are usually few ranges, so that looking at each is as good as a heap. */
function nextCursor(cursors: readonly Cursor[], reverse: boolean): number {
  let best = 0;
  let entry = currentEntry(cursors[0]!);
  for (let index = 1; index < cursors.length; index++) {
    const other = currentEntry(cursors[index]!);
    if (reverse ? other > entry : other < entry) {
      best = index;
      entry = other;
    }
  }
  return best;
}

const currentEntry = ({ prefix, keys, next }: Cursor): string => keys[next]!.slice(prefix.length);
