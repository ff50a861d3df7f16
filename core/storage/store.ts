/**
 * Storage as the rest of Penstock sees it: ordered text keys with text values, atomic commits, compare-and-set. Engines
 * are in this folder; what keys look like is in keys.ts.
 */

/** One row. `value` is JSON text, or the decimal text of a counter. `revision` changes with every write of the row. */
export interface Row {
  readonly key: string;
  readonly value: string;
  readonly revision: number;
}

/** Rows of one prefix in the order of their keys (by code point; keys are visible ASCII), at most `limit`. */
export interface Range {
  readonly prefix: string;
  /** Exclusive bounds, whole keys. */
  readonly after?: string;
  readonly before?: string;
  readonly reverse?: boolean;
  readonly limit: number;
  /** Rows to pass over first; bounded by the engine, for pages by number only. */
  readonly skip?: number;
}

/** The last values of a prefix, at most `limit`, and one row that belongs to them. */
export interface Tail extends Omit<Range, "reverse" | "skip"> {
  /** A whole key. */
  readonly beside: string;
}

export interface Joined {
  /** The values in the order of their keys, with commas between them; bytes (UTF-8) where that is cheaper. */
  readonly text: string | Uint8Array;
  /** Key of the first of them when there may be more before it, else null. */
  readonly first: string | null;
  /** Undefined when there is no such row. */
  readonly beside: Row | undefined;
}

/** Changes that happen together or not at all. */
export interface Commit {
  readonly put?: readonly (readonly [key: string, value: string])[];
  readonly delete?: readonly string[];
  /** Every row whose key begins with one of these is deleted. */
  readonly clear?: readonly string[];
  /** Counters: commutative, so that a total is no hot spot. An absent one counts from 0. */
  readonly add?: readonly (readonly [key: string, delta: number])[];
  /** Revisions that must still hold; null: the row must not exist. */
  readonly expect?: readonly (readonly [key: string, revision: number | null])[];
}

/**
 * Every method rejects with ServiceError `unavailable` while the engine cannot work (disk full, file locked, connection
 * lost), and works again by itself when it can.
 */
export interface Store {
  /** `memory`, `sqlite`, `postgres`, or the name of a plugin. */
  readonly kind: string;
  get(key: string): Promise<Row | undefined>;
  /** In the order of `keys`. Calls of one tick are one query. */
  getMany(keys: readonly string[]): Promise<(Row | undefined)[]>;
  scan(range: Range): Promise<Row[]>;
  /** What `scan` gives from the end, as one text that need not be taken apart. Null: it is more than one text can hold. */
  tail(tail: Tail): Promise<Joined | null>;
  /**
   * Resolves once the changes are on disk, with the revision that the rows it put have now: no other commit that wrote one
   * of them has the same, so that the writer can `expect` it without reading. Commits of one tick are one transaction.
   * Rejects with CommitConflict.
   */
  commit(commit: Commit): Promise<number>;
  /** For `/readyz`: why the store cannot be used now, or null. */
  problem(): Promise<string | null>;
  close(): Promise<void>;
}
