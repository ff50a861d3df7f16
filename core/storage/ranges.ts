/** Walks ranges of rows in pages, so that no query takes long and little is held in memory, however large the rows are. */
import { setTimeout as sleep } from "node:timers/promises";
import { between, joined, Serialized, SerializedStream } from "../lib/serialized.ts";
import { createTurns } from "../lib/turns.ts";
import { groupsOf } from "./bounded-reader.ts";
import { isVolatile, type Range, type Row, type Store } from "./store.ts";

/*
 * Large rows are measured first, and read when it is their turn: a few at a time in the whole process, however many readers there are
 * and whatever they ask for. A queue of readers instead would let a slow one stop the others.
 */

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

// Waits between two looks at something that other processes change.

export class Watch {
  /** Whether it was woken since the last wait: then the next one is none. */
  #woken = false;
  #wake: (() => void) | null = null;
  readonly #end: (() => void) | undefined;

  /** To be made before the first look, so that nothing is missed between the two. */
  constructor(store: Pick<Store, "watch">, topic: string) {
    this.#end = store.watch?.(topic, () => {
      if (this.#wake === null) this.#woken = true;
      else this.#wake();
    });
  }

  /** Resolves when the topic is woken, when the time is over or when `signal` aborts. */
  wait(milliseconds: number, signal?: AbortSignal): Promise<void> {
    if (this.#woken || signal?.aborted) {
      this.#woken = false;
      return Promise.resolve();
    }
    return new Promise((resolve) => {
      const done = () => {
        clearTimeout(timer);
        signal?.removeEventListener("abort", done);
        this.#wake = null;
        resolve();
      };
      const timer = setTimeout(done, milliseconds).unref();
      signal?.addEventListener("abort", done);
      this.#wake = done;
    });
  }

  end(): void {
    this.#end?.();
  }
}
