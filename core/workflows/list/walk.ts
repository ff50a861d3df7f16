/** Executions of several index ranges, and those that run, as one list: newest first. */
import { MAX_SKIPPED_ROWS } from "../../storage/check.ts";
import { indexedEntry, indexedExecution } from "../../storage/keys.ts";
import type { Range, Store } from "../../storage/store.ts";

/** Rows read at once. */
const LEAST = 16;
const PIECE = 256;

/** An execution by its place in the list. */
export interface Item {
  /** Orders items: time of creation, then number. */
  readonly entry: string;
  readonly number: number;
  /** Of its index row; null for one that runs. */
  readonly revision: number | null;
}

export class Walk {
  readonly #store: Store;
  readonly #cursors: Cursor[];
  #last = "";

  constructor(store: Store, ranges: readonly Omit<Range, "limit">[]) {
    this.#store = store;
    this.#cursors = ranges.map((range) => ({ range, items: [], next: 0 }));
  }

  /** Items that come from elsewhere, before anything is passed or read. */
  add(items: readonly Item[]): void {
    if (items.length === 0) return;
    const sorted = [...items].sort((a, b) => (a.entry < b.entry ? 1 : -1));
    // In front: of an execution that is found twice, the first one counts.
    this.#cursors.unshift({ range: null, items: sorted, next: 0 });
  }

  /** Reads what the first items are taken from: one moment of the store. */
  async fill(count: number): Promise<void> {
    const limit = Math.min(PIECE, Math.max(LEAST, count));
    const empty = this.#cursors.filter(({ range, items, next }) => range !== null && next === items.length);
    await Promise.all(empty.map((cursor) => refill(this.#store, cursor, limit)));
  }

  /**
   * Passes over items without reading them. Of n ranges, the one whose item number left/n comes first of all such items holds
   * no item before it that is behind those to pass: so many can be passed in it at once.
   */
  async pass(count: number): Promise<void> {
    let left = count;
    for (;;) {
      const open = this.#cursors.filter(({ range, items, next }) => range !== null || next < items.length);
      if (open.length === 0) return;
      const share = Math.min(MAX_SKIPPED_ROWS, Math.floor(left / open.length));
      if (share < PIECE) break;
      const marks = await Promise.all(open.map((cursor) => peek(this.#store, cursor, share)));
      let first = 0;
      for (let index = 1; index < marks.length; index++) if ((marks[index] ?? "") > (marks[first] ?? "")) first = index;
      const mark = marks[first];
      if (mark === undefined) {
        // All of them together are fewer than those to pass.
        this.#cursors.length = 0;
        return;
      }
      skip(open[first]!, share, mark);
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

  /** Until one of them has to be filled again. */
  #merge(cursors: readonly Cursor[], taken: Item[], count: number): void {
    let open = cursors;
    while (taken.length < count) {
      let first = open[0]!;
      for (const cursor of open) if (entryOf(cursor) > entryOf(first)) first = cursor;
      const item = first.items[first.next++]!;
      // One that has come to rest meanwhile is among both.
      if (item.entry !== this.#last) taken.push(item);
      this.#last = item.entry;
      if (first.next < first.items.length) continue;
      if (first.range !== null || open.length === 1) return;
      open = open.filter((cursor) => cursor !== first);
    }
  }
}

interface Cursor {
  /** What is not read yet; null: nothing. */
  range: Omit<Range, "limit"> | null;
  items: readonly Item[];
  next: number;
}

const entryOf = ({ items, next }: Cursor): string => items[next]!.entry;

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

/** The entry of its item number `count`, from 1, if there is one. */
async function peek(store: Store, { range, items, next }: Cursor, count: number): Promise<string | undefined> {
  const held = items[next + count - 1];
  if (held !== undefined || range === null) return held?.entry;
  const [row] = await store.scan({ ...range, reverse: true, limit: 1, skip: count - 1 - (items.length - next) });
  return row && indexedEntry(row.key);
}

function skip(cursor: Cursor, count: number, mark: string): void {
  if (cursor.next + count <= cursor.items.length) {
    cursor.next += count;
    return;
  }
  cursor.items = [];
  cursor.next = 0;
  cursor.range = { ...cursor.range!, before: cursor.range!.prefix + mark };
}
