/**
 * Records of one kind: a row each, and the rows that lead to it. These follow from the record, and change in the commit that changes it.
 * Every change expects the record as it was read: of two simultaneous changes, one is a `CommitConflict`.
 */
import { systemTime } from "../lib/clock.ts";
import { Interval } from "../lib/interval.ts";
import { decodeNumber, encodeNumber, encodeShortText, encodeText } from "./keys.ts";
import { excessBytes, type KindOfRows } from "./memory-shares.ts";
import { allRows, pagesInBackground, rowsAt } from "./ranges.ts";
import { type Commit, isVolatile, type Row, type Store, unlessConflict } from "./store.ts";

export const RECORDS_PER_PAGE = 50;
const ROWS_PER_COUNT = 10_000;
const ROWS_PER_COMMIT = 100;
const RETENTION_INTERVAL_MS = 60_000;
/** Short, since what comes within it is kept as well. */
const ROOM_INTERVAL_MS = 250;

/** How records of a kind are kept. Keys of all rows that lead to one end with its id. */
interface Kind<T> {
  /** What the key of a record begins with, before its id. */
  readonly prefix: string;
  /** What the key of its row of time begins with. */
  readonly times: string;
  /** That time, in milliseconds since 1970: when there is something to do with the record. `Infinity`: it has no such row. */
  timeOf(record: T): number;
  /** What the rows of its time and its lists say of it. */
  factsOf?(record: T): readonly unknown[];
  /**
   * Its lists: what their keys begin with, and the fields that the records of one have in common. A record without one of these is in no
   * such list. Those of more fields come later.
   */
  readonly lists?: readonly (readonly [name: string, ...fields: (keyof T)[]])[];
  /** The time by which they are in order, in milliseconds since 1970; default: that time. */
  orderOf?(record: T): number;
  /** Prefixes of what else leads to it. */
  placesOf?(record: T): readonly string[];
}

export interface Found<T> {
  readonly id: string;
  readonly record: T;
  readonly revision: number;
  /** Characters of its row. */
  readonly size: number;
}

/** With its row of time, whose key cannot be computed where that time depends on settings. */
export interface Due<T> extends Found<T> {
  readonly time: Row;
}

interface Removal<T> {
  /** In `memory:`, whose room they share. */
  readonly room: KindOfRows;
  /** For how many milliseconds they are kept. */
  kept(): number;
  /** Whether one stays where there is no room: the first time that all are looked through, or also the second time. */
  stays(found: Found<T>, isFirst: boolean): boolean;
  failed(error: unknown): void;
}

interface Page {
  readonly limit: number;
  readonly offset: number;
  /** `asc`: oldest first. */
  readonly order: "asc" | "desc";
}

export class Collection<T extends object> {
  readonly store: Store;
  readonly #kind: Kind<T>;

  constructor(store: Store, kind: Kind<T>) {
    this.store = store;
    this.#kind = kind;
  }

  key(id: string): string {
    return this.#kind.prefix + encodeText(id);
  }

  async read(id: string): Promise<Found<T> | undefined> {
    const row = await this.store.get(this.key(id));
    return row && found(row);
  }

  /** The records with these ids, as far as they exist. */
  async readMany(ids: readonly string[]): Promise<Found<T>[]> {
    const rows = await this.store.getMany(ids.map((id) => this.key(id)));
    return rows.flatMap((row) => (row === undefined ? [] : found<T>(row)));
  }

  /** Pages of the records that rows with a prefix lead to. */
  async *pagesOf(prefix: string): AsyncGenerator<Found<T>[], void> {
    for await (const rows of allRows(this.store, { prefix }, RECORDS_PER_PAGE)) yield this.readRows(rows);
  }

  /** Those that the rows of a list or a place name. */
  readRows(rows: readonly Row[]): Promise<Found<T>[]> {
    return this.readMany(rows.map(idOfRow));
  }

  async list(filter: Partial<T>, { limit, offset, order }: Page): Promise<T[]> {
    const range = { prefix: this.listOf(filter), reverse: order === "desc", limit };
    const rows = await rowsAt(this.store, range, offset);
    return (await this.readRows(rows)).map(({ record }) => record);
  }

  async count(filter: Partial<T>): Promise<number> {
    let count = 0;
    const prefix = this.listOf(filter);
    for await (const rows of allRows(this.store, { prefix }, ROWS_PER_COUNT)) count += rows.length;
    return count;
  }

  /** The rows of times before `time`, in milliseconds since 1970. */
  before(time: number): { prefix: string; before: string } {
    const { times: prefix } = this.#kind;
    return { prefix, before: prefix + encodeNumber(Math.max(0, time)) };
  }

  /** A page of those whose time has come by `now`, the earliest first. */
  async due(now: number): Promise<Due<T>[]> {
    const rows = await this.store.scan({ ...this.before(now + 1), limit: RECORDS_PER_PAGE });
    const timeOf = new Map(rows.map((row) => [idOfRow(row), row]));
    return (await this.readMany([...timeOf.keys()])).map((each) => ({ ...each, time: timeOf.get(each.id)! }));
  }

  /**
   * Puts a record in the place of another one, both with the rows that lead to them. Resolves to its revision.
   *
   * @param before undefined: there is none
   * @param after undefined: it is removed
   * @param more of the same commit; what it expects is instead of the record as it was
   * @param text `after` as JSON
   */
  write(
    id: string,
    before: Pick<Found<T>, "record" | "revision"> | undefined,
    after: T | undefined,
    more?: Commit,
    text?: string,
  ): Promise<number> {
    return this.store.commit(this.commitOf(id, before, after, more, text));
  }

  /** What `write` commits. */
  commitOf(
    id: string,
    before: Pick<Found<T>, "record" | "revision"> | undefined,
    after: T | undefined,
    { put = [], delete: removed = [], expect = [[this.key(id), before?.revision ?? null]] }: Commit = {},
    text = JSON.stringify(after),
  ): Required<Pick<Commit, "put" | "delete" | "expect">> {
    const key = this.key(id);
    const old = before === undefined ? [] : this.#pointers(id, before.record);
    const next = after === undefined ? [] : this.#pointers(id, after);
    const gone = old.flatMap(([key]) => (next.some(([same]) => same === key) ? [] : [key]));
    const rows = next.filter(([key, value]) => !old.some(([same, said]) => same === key && said === value));
    if (after !== undefined) return { put: [[key, text], ...rows, ...put], delete: [...gone, ...removed], expect };
    return { put, delete: [...(before === undefined ? [] : [key]), ...gone, ...removed], expect };
  }

  /** The work that removes them when they are too old, and in `memory:` when they take more than their room. */
  removal({ kept, failed, ...rest }: Removal<T>): { start(): void; stop(): Promise<unknown> } {
    const stopping = new AbortController();
    const { signal } = stopping;
    const works = [new Interval(RETENTION_INTERVAL_MS, () => this.removeBefore(systemTime() - kept(), signal), failed)];
    if (isVolatile(this.store)) works.push(new Interval(ROOM_INTERVAL_MS, () => this.#makeRoom(rest, signal), failed));
    return {
      start() {
        for (const work of works) work.start();
      },
      stop() {
        stopping.abort();
        return Promise.all(works.map((work) => work.stop()));
      },
    };
  }

  /**
   * Removes those whose time is before `time`, in milliseconds since 1970, a page at a time.
   *
   * @param forget removes those of a page, given the rows of their times; default: with no other row than that
   */
  async removeBefore(
    time: number,
    signal: AbortSignal,
    forget: (times: readonly Row[]) => Promise<unknown> = (times) => this.#forget(times),
  ): Promise<void> {
    const range = this.before(time);
    for await (const rows of pagesInBackground(this.store, range, ROWS_PER_COMMIT, signal)) await forget(rows);
  }

  async #makeRoom({ room, stays }: Pick<Removal<T>, "room" | "stays">, signal: AbortSignal): Promise<void> {
    for (const isFirst of [true, false]) {
      if (excessBytes(this.store, room) <= 0) return;
      const { times: prefix } = this.#kind;
      for await (const rows of pagesInBackground(this.store, { prefix }, ROWS_PER_COMMIT, signal))
        for (const time of rows) {
          const found = await this.read(idOfRow(time));
          if (found !== undefined && stays(found, isFirst)) continue;
          await this.#forget([time]);
          if (excessBytes(this.store, room) <= 0) return;
        }
    }
  }

  /** @param times one that has another time by now stays */
  async #forget(times: readonly Row[]): Promise<void> {
    const removed = times.flatMap((time) => [time.key, this.key(idOfRow(time))]);
    const expect = times.map(({ key, revision }) => [key, revision] as const);
    await unlessConflict(this.store.commit({ delete: removed, expect }));
  }

  /** The rows that lead to a record. */
  #pointers(id: string, record: T): [key: string, value: string][] {
    const { times, timeOf, factsOf, orderOf = timeOf, placesOf } = this.#kind;
    const facts = factsOf === undefined ? "" : JSON.stringify(factsOf(record));
    const time = timeOf(record);
    const pointers: [string, string][] =
      time === Number.POSITIVE_INFINITY ? [] : [[`${times}${encodeNumber(time)}/${id}`, facts]];
    for (const list of this.#listsOf(record)) pointers.push([`${list}${encodeNumber(orderOf(record))}/${id}`, facts]);
    if (placesOf !== undefined) for (const place of placesOf(record)) pointers.push([place + id, ""]);
    return pointers;
  }

  /** What the rows of the narrowest list of records with these values begin with; where there is none, those of all times. */
  listOf(values: Partial<T>): string {
    return this.#listsOf(values).at(-1) ?? this.#kind.times;
  }

  /** Prefixes of the lists of records with these values, the narrowest last. */
  #listsOf(values: Partial<T>): string[] {
    const { lists = [] } = this.#kind;
    const within = lists.filter(([, ...fields]) => fields.every((field) => values[field] !== undefined));
    return within.map(([name, first, ...others]) => {
      const parts = [
        encodeText(String(values[first!])),
        ...others.map((field) => encodeShortText(String(values[field]))),
      ];
      return `${name}${parts.join("/")}/`;
    });
  }
}

/** The record that a row leads to. */
export const idOfRow = ({ key }: Pick<Row, "key">): string => key.slice(key.lastIndexOf("/") + 1);

/** Where it has that record, in its time or in the order of a list. */
export const placeOfRow = ({ key }: Pick<Row, "key">): number => decodeNumber(key.split("/").at(-2)!);

export const found = <T>(row: Row): Found<T> => ({
  id: idOfRow(row),
  record: JSON.parse(row.value),
  revision: row.revision,
  size: row.value.length,
});
