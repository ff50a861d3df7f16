/**
 * Reads of any size through queries of a bounded one. A query gives values whole up to a length that the number of its rows decides,
 * and excerpts of the others. Those that are wanted whole are read afterwards, a few at a time: their sizes are known by then.
 */
import { unavailable } from "../lib/errors.ts";
import { EXCERPT_CHARACTERS, type Joined, type Range, type Row, type Tail } from "./store.ts";

// Many rows packed into one text, which costs a database driver a fraction of one object per row.

/** ASCII's own separators. Keys and JSON text contain neither (keys.ts refuses them). */
const FIELD_SEPARATOR = "\x1f";
const RECORD_SEPARATOR = "\x1e";

/** What differs between the dialects of SQL: expressions about a row, whose columns are in scope. */
export interface Dialect {
  /** The function that makes a character of its code. */
  readonly char: string;
  /** The whole value. */
  readonly whole: string;
  /** Its bytes, which are known without reading it. */
  readonly size: string;
  /** Its first and last characters. */
  readonly excerpt: string;
}
export const POSTGRES: Dialect = {
  char: "chr",
  whole: "value",
  size: "octet_length(value)",
  excerpt: `substr(value, 1, ${EXCERPT_CHARACTERS}) || right(value, ${EXCERPT_CHARACTERS})`,
};

/**
 * The SQL expression of one packed row, whose columns are in scope. In an excerpt the revision is negative, and the size comes before the
 * value.
 *
 * @param longest SQL expression of the bytes of the longest value that is packed whole
 */
export function packRowSql({ char, whole, size, excerpt }: Dialect, longest: string): string {
  const field = ` || ${char}(31) || `;
  return `key${field}CASE WHEN ${size} <= ${longest} THEN revision${field}${whole} ELSE (-revision)${field}${size}${field}${excerpt} END`;
}

/** @param text the packed rows; null when there are none */
export function unpack(text: string | null): Row[] {
  if (text === null) return [];
  const rows: Row[] = [];
  for (let start = 0; start <= text.length; ) {
    let end = text.indexOf(RECORD_SEPARATOR, start);
    if (end < 0) end = text.length;
    const afterKey = text.indexOf(FIELD_SEPARATOR, start);
    const afterRevision = text.indexOf(FIELD_SEPARATOR, afterKey + 1);
    const key = text.slice(start, afterKey);
    const revision = Number(text.slice(afterKey + 1, afterRevision));
    if (revision >= 0) rows.push({ key, value: text.slice(afterRevision + 1, end), revision });
    else {
      const afterSize = text.indexOf(FIELD_SEPARATOR, afterRevision + 1);
      const size = Number(text.slice(afterRevision + 1, afterSize));
      rows.push({ key, value: text.slice(afterSize + 1, end), revision: -revision, size });
    }
    start = end + 1;
  }
  return rows;
}

/** The row as a read gives it that wants no longer values. */
export function excerpt(row: Row, longest: number): Row {
  const { key, value, revision } = row;
  // No character has more than three bytes for one unit.
  if (row.size !== undefined || value.length * 3 <= longest) return row;
  const size = Buffer.byteLength(value);
  if (size <= longest) return row;
  return { key, value: value.slice(0, EXCERPT_CHARACTERS) + value.slice(-EXCERPT_CHARACTERS), revision, size };
}

/** Bytes of what one query gives. Several queries of this size still fit beside each other into any process. */
const MAX_RESULT_BYTES = 32 * 1024 * 1024;

export const textLimit = (most = MAX_RESULT_BYTES): number => Math.min(most, MAX_RESULT_BYTES);

/** The result of `Store.tail`, made of the rows in their order. */
export function joinRows(rows: readonly Row[], { limit, most }: Tail, other: Row | undefined): Joined | null {
  let size = 0;
  for (const { value } of rows) size += value.length;
  if (size > textLimit(most)) return null;
  const text = rows.map((row) => row.value).join(",");
  return { text, first: rows.length < limit ? null : rows[0]!.key, other };
}

/** Queries of an engine. Values of more than `longest` bytes come as excerpts. */
export interface RowQueries {
  /** The rows that exist, by key. */
  rows(keys: readonly string[], longest: number): Promise<ReadonlyMap<string, Row>>;
  /** The rows of each range, in its order. */
  ranges(ranges: readonly Range[], longest: number): Promise<Row[][]>;
}

export interface WantedRows {
  readonly keys: readonly string[];
  readonly longest: number | undefined;
}

type MaybeRows = (Row | undefined)[];

interface BoundedReader {
  /** The rows of each list, in the order of its keys. */
  lists(lists: readonly WantedRows[]): Promise<MaybeRows[]>;
  ranges(ranges: readonly Range[]): Promise<Row[][]>;
}

/** A longer range is read in pieces. */
const MAX_RANGE_ROWS = 16_000;
/** How often rows are read again because a large one was written meanwhile. That takes no longer than the read, so that it is rare. */
const MAX_TRIES = 20;

export function createBoundedReader(queries: RowQueries): BoundedReader {
  /** Null: a row has changed since the others were read. */
  async function complete(found: MaybeRows, longest = Number.POSITIVE_INFINITY): Promise<MaybeRows | null> {
    const large = new Map<string, Row>();
    for (const row of found) if (row?.size !== undefined && row.size <= longest) large.set(row.key, row);
    for (const group of groupsOf([...large.values()], ({ size = 0 }) => size, MAX_RESULT_BYTES)) {
      const greatest = Math.max(...group.map(({ size = 0 }) => size));
      const rows = await queries.rows(
        group.map(({ key }) => key),
        greatest,
      );
      for (const { key, revision } of group) {
        const row = rows.get(key);
        if (row?.revision !== revision) return null;
        large.set(key, row);
      }
    }
    return found.map((row) => row && excerpt(large.get(row.key) ?? row, longest));
  }

  /** All rows are as they were at one moment: that of the last first read. */
  async function whole(first: MaybeRows | undefined, read: () => Promise<MaybeRows>, longest: number | undefined) {
    let found = first ?? (await read());
    for (let tries = 1; tries <= MAX_TRIES; tries++) {
      const completed = await complete(found, longest);
      if (completed !== null) return completed;
      found = await read();
    }
    throw unavailable("storage is unavailable: what is read changes all the time");
  }

  async function list({ keys, longest }: WantedRows, first?: MaybeRows): Promise<MaybeRows> {
    const read = async () => pick(await queries.rows([...new Set(keys)], fairShare(keys.length, longest)), keys);
    return whole(first, read, longest);
  }

  async function range(wanted: Range, first?: Row[]): Promise<Row[]> {
    const read = async () => (await queries.ranges([wanted], fairShare(wanted.limit, wanted.longest)))[0] ?? [];
    return (await whole(first, read, wanted.longest)) as Row[];
  }

  async function longRange(wanted: Range): Promise<Row[]> {
    const all: Row[] = [];
    for (let rest = wanted; ; ) {
      const limit = Math.min(MAX_RANGE_ROWS, wanted.limit - all.length);
      const rows = await range({ ...rest, limit });
      for (const row of rows) all.push(row);
      if (rows.length < limit || all.length === wanted.limit) return all;
      rest = { ...wanted, skip: 0, [wanted.reverse ? "before" : "after"]: rows.at(-1)!.key };
    }
  }

  return {
    async lists(lists) {
      const keys = [...new Set(lists.flatMap((each) => each.keys))];
      const rows = await queries.rows(keys, fairShare(keys.length, longestOf(lists)));
      const results: MaybeRows[] = [];
      for (const each of lists) results.push(await list(each, pick(rows, each.keys)));
      return results;
    },
    async ranges(ranges) {
      const usual = ranges.filter(({ limit }) => limit <= MAX_RANGE_ROWS);
      const total = usual.reduce((sum, { limit }) => sum + limit, 0);
      const share = fairShare(total, longestOf(usual));
      const found = usual.length === 0 ? [] : await queries.ranges(usual, share);
      const results: Row[][] = [];
      for (const each of ranges) {
        const at = usual.indexOf(each);
        results.push(at < 0 ? await longRange(each) : await range(each, found[at]));
      }
      return results;
    },
  };
}

const pick = (rows: ReadonlyMap<string, Row>, keys: readonly string[]): MaybeRows => keys.map((key) => rows.get(key));

/** Bytes of the longest value that comes with a query of this many rows, of which none longer than `wanted` is wanted. */
export const fairShare = (rows: number, wanted = Number.POSITIVE_INFINITY): number =>
  Math.min(wanted, Math.floor(MAX_RESULT_BYTES / Math.max(1, rows)));

const longestOf = (reads: readonly { readonly longest?: number | undefined }[]): number =>
  reads.reduce((most, { longest = Number.POSITIVE_INFINITY }) => Math.max(most, longest), 0);

/** Groups of items in their order, each of at most that size together, or of one item. */
export function* groupsOf<T>(items: readonly T[], sizeOf: (item: T) => number, most: number): Generator<T[]> {
  let group: T[] = [];
  let size = 0;
  for (const item of items) {
    const next = sizeOf(item);
    if (group.length > 0 && size + next > most) {
      yield group;
      group = [];
      size = 0;
    }
    group.push(item);
    size += next;
  }
  if (group.length > 0) yield group;
}
