/** Merges the executions of several index ranges and the running ones into one list, newest first. */
import { indexedEntry, indexedExecution, MAX_SKIPPED_ROWS } from "../../storage/keys.ts";
import type { Range, Store } from "../../storage/store.ts";

/** Fewest rows read at once from a range. */
const MIN_ROWS_PER_READ = 16;
const MAX_ROWS_PER_READ = 256;

/** An execution and its place in the list. */
export interface Item {
  /** The sort key: time of creation, then number. */
  readonly entry: string;
  readonly number: number;
  /** Revision of its index row; null for a running one. */
  readonly revision: number | null;
}

export class IndexWalk {
  readonly #store: Store;
  readonly #cursors: Cursor[];
  #last = "";

  constructor(store: Store, ranges: readonly Omit<Range, "limit">[]) {
    this.#store = store;
    this.#cursors = ranges.map((range) => ({ range, items: [], next: 0 }));
  }

  /** Adds items of running executions. Must be called before anything is skipped or read. */
  add(items: readonly Item[]): void {
    if (items.length === 0) return;
    const sorted = [...items].sort((a, b) => (a.entry < b.entry ? 1 : -1));
    // First, so that an execution which is found twice counts as running.
    this.#cursors.unshift({ range: null, items: sorted, next: 0 });
  }

  /** Reads the next rows of every range that has none left. */
  async fill(count: number): Promise<void> {
    const limit = Math.min(MAX_ROWS_PER_READ, Math.max(MIN_ROWS_PER_READ, count));
    const empty = this.#cursors.filter(({ range, items, next }) => range !== null && next === items.length);
    await Promise.all(empty.map((cursor) => refill(this.#store, cursor, limit)));
  }

  /**
   * Skips items without reading them. With n ranges, look at the item at position left/n of each range. The newest of these, and what
   * comes before it in its range, is certainly among the items to skip, so the whole share of this range is skipped at once.
   */
  async skip(count: number): Promise<void> {
    let left = count;
    for (;;) {
      const open = this.#cursors.filter(({ range, items, next }) => range !== null || next < items.length);
      if (open.length === 0) return;
      const share = Math.min(MAX_SKIPPED_ROWS, Math.floor(left / open.length));
      if (share < MAX_ROWS_PER_READ) break;
      const marks = await Promise.all(open.map((cursor) => peek(this.#store, cursor, share)));
      let first = 0;
      for (let index = 1; index < marks.length; index++) if ((marks[index] ?? "") > (marks[first] ?? "")) first = index;
      const mark = marks[first];
      if (mark === undefined) {
        // All ranges together have fewer items than are to be skipped.
        this.#cursors.length = 0;
        return;
      }
      skipInRange(open[first]!, share, mark);
      left -= share;
    }
    if (left > 0) await this.next(left);
  }

  /** The next items; fewer only at the end. */
  async next(count: number): Promise<Item[]> {
    const taken: Item[] = [];
    while (taken.length < count) {
      await this.fill(count - taken.length);
      const open = this.#cursors.filter(({ items, next }) => next < items.length);
      if (open.length === 0) break;
      this.#merge(open, taken, count);
    }
    return taken;
  }

  /** Takes items in order until a range has to be read again. */
  #merge(cursors: readonly Cursor[], taken: Item[], count: number): void {
    let open = cursors;
    while (taken.length < count) {
      let first = open[0]!;
      for (const cursor of open) if (currentEntry(cursor) > currentEntry(first)) first = cursor;
      const item = first.items[first.next++]!;
      // An execution that has settled meanwhile is found twice: among the running ones and in an index.
      if (item.entry !== this.#last) taken.push(item);
      this.#last = item.entry;
      if (first.next < first.items.length) continue;
      if (first.range !== null || open.length === 1) return;
      open = open.filter((cursor) => cursor !== first);
    }
  }
}

interface Cursor {
  /** The part of the range that has not been read; null when all has been. */
  range: Omit<Range, "limit"> | null;
  items: readonly Item[];
  next: number;
}

const currentEntry = ({ items, next }: Cursor): string => items[next]!.entry;

async function refill(store: Store, cursor: Cursor, limit: number): Promise<void> {
  const { range } = cursor;
  if (range === null) return;
  const rows = await store.scan({ ...range, reverse: true, limit });
  cursor.items = rows.map(({ key, revision }) => ({
    entry: indexedEntry(key),
    number: indexedExecution(key),
    revision,
  }));
  cursor.next = 0;
  cursor.range = rows.length < limit ? null : { ...range, before: rows.at(-1)!.key };
}

/** The entry of the item at position `count`, from 1, if there is one. */
async function peek(store: Store, { range, items, next }: Cursor, count: number): Promise<string | undefined> {
  const known = items[next + count - 1];
  if (known !== undefined || range === null) return known?.entry;
  const [row] = await store.scan({ ...range, reverse: true, limit: 1, skip: count - 1 - (items.length - next) });
  return row && indexedEntry(row.key);
}

function skipInRange(cursor: Cursor, count: number, mark: string): void {
  if (cursor.next + count <= cursor.items.length) {
    cursor.next += count;
    return;
  }
  cursor.items = [];
  cursor.next = 0;
  cursor.range = { ...cursor.range!, before: cursor.range!.prefix + mark };
}
