/**
 * The interface of storage: sorted text keys with text values, atomic commits, compare-and-set. The engines are in this folder; the
 * layouts of keys are in keys.ts, and in the rooms of records that are collections.
 */

import type { Presence } from "./presence.ts";
import type { VectorRows, VectorTables } from "./vector-tables.ts";

/** One row. `value` is JSON text, or the decimal text of a counter. `revision` changes with every write of the row. */
export interface Row {
  readonly key: string;
  readonly value: string;
  readonly revision: number;
  /**
   * Only of a value that is longer than the read asked for: its bytes. `value` then is an excerpt, its first and last characters
   * (`EXCERPT_CHARACTERS` of each).
   */
  readonly size?: number;
}

export const EXCERPT_CHARACTERS = 64;

/** Rows of one prefix in the order of their keys (by code point; keys are visible ASCII), at most `limit`. */
export interface Range {
  readonly prefix: string;
  /** Exclusive bounds, whole keys. */
  readonly after?: string;
  readonly before?: string;
  readonly reverse?: boolean;
  readonly limit: number;
  /** Rows to skip first. Bounded by the engine, and meant only for pages by number. */
  readonly skip?: number;
  /** Bytes of the longest value that is wanted whole; default: all are. It bounds what a read of many large rows takes. */
  readonly longest?: number;
  /** Nobody waits for these rows: an engine may read them where they keep nobody waiting. */
  readonly background?: boolean;
}

/** The last values of a prefix, at most `limit`, and one other row. */
export interface Tail extends Omit<Range, "reverse" | "skip" | "longest" | "background"> {
  /** Bytes of the longest text that is wanted; default and maximum: 32 MiB. */
  readonly most?: number;
  /** The key of the other row. */
  readonly otherKey: string;
}

export interface Joined {
  /** The values in the order of their keys, joined by commas; as UTF-8 bytes where that is cheaper. */
  readonly text: string | Uint8Array;
  /** Key of the first value when there may be more before it, else null. */
  readonly first: string | null;
  /** Undefined when there is no such row. */
  readonly other: Row | undefined;
}

/** Changes that happen together or not at all. */
export interface Commit {
  readonly put?: readonly (readonly [key: string, value: string])[];
  readonly delete?: readonly string[];
  /** Every row whose key begins with one of these is deleted. */
  readonly clear?: readonly string[];
  /** Additions to counters, which do not conflict with each other. A counter that does not exist starts from 0. */
  readonly add?: readonly (readonly [key: string, delta: number])[];
  /** Revisions that rows must still have; null: the row must not exist. */
  readonly expect?: readonly (readonly [key: string, revision: number | null])[];
  /**
   * It deletes more than it puts, so that an engine may write it on a full disk. A commit that deletes and puts nothing needs not say so.
   */
  readonly makesRoom?: boolean;
  /** What rows belong to that the commit changes, so that they count for its user (stored-bytes.ts). */
  readonly of?: readonly OwnedRows[];
  /** It belongs to work that has begun: it counts, and is never refused for what its user has stored. */
  readonly begun?: boolean | undefined;
}

/** A conversation, an execution, or what is stored of a user in a memory: then it has no number. */
export type OwnedRows = { readonly userId?: string | undefined } & (
  | { readonly memory: string; readonly number?: number }
  | { readonly workflowId: string; readonly number: number }
);

/**
 * Every method rejects with ServiceError `unavailable` while the engine cannot work (disk full, file locked, connection
 * lost), and recovers without a restart.
 */
export interface Store {
  /** `memory`, `sqlite`, `postgres`, or the name of a plugin. */
  readonly kind: string;
  get(key: string): Promise<Row | undefined>;
  /**
   * In the order of `keys`. Calls of one tick are one query.
   *
   * @param longest bytes of the longest value that is wanted whole; default: all are
   */
  getMany(keys: readonly string[], longest?: number): Promise<(Row | undefined)[]>;
  scan(range: Range): Promise<Row[]>;
  /** The values of a reverse `scan`, joined into one text in the order of their keys. Null: some value, or all together, are too large for that. */
  tail(tail: Tail): Promise<Joined | null>;
  /**
   * Resolves once the changes are on disk, with the revision that the rows it put have now. No other commit to one of these rows has the
   * same revision, so that the writer can `expect` it without reading. Commits of one tick are one transaction.
   * Rejects with CommitConflict.
   */
  commit(commit: Commit): Promise<number>;
  /**
   * Only of stores that can tell other processes: those that watch `topic` look at once, instead of at their next poll. It is a hint that
   * may be lost, and may come without a reason. What has changed is in the rows.
   */
  wake?(topic: string): void;
  /** Goes with `wake`. Calls `woken` when this process or another one has woken the topic, until the function that it returns is called. */
  watch?(topic: string, woken: () => void): () => void;
  /**
   * Goes with `watch`. Calls `listener` when another process begins to watch the topic, and at once if one does or may, until the function
   * that it returns is called. It may come without a reason.
   */
  watched?(topic: string, listener: () => void): () => void;
  /**
   * Only where the bytes of users are bounded: rejects with ServiceError `too_large` when this user has no room for so many more.
   *
   * @param bytes called where there is a bound
   */
  requireRoom?(user: string | undefined, bytes: () => number): Promise<void> | undefined;
  /** Goes with `requireRoom`. Whether what this user has stored is so much that work which has begun must end. */
  isOverfull?(user: string | undefined): boolean;
  /** Only of stores in the heap: about how many bytes the rows take whose keys begin with `space`, which ends with their first `/`. */
  held?(space: string): number;
  /** Only of stores that can tell which processes have a session with the database. */
  readonly presence?: Presence;
  /**
   * Only of stores whose database can compare vectors, if it has what is needed: the tables of the vectors in these rows, or why there are
   * none. A second call has the same result.
   */
  vectors?(rows: VectorRows): Promise<VectorTables | { problem: string }>;
  /** For `/readyz`: why the store cannot be used now, or null. */
  problem(): Promise<string | null>;
  close(): Promise<void>;
}

/** A store as a plugin makes it. Without `tail` of its own it gets one that is made of `scan` and `get`. */
export type PluginStore = Omit<Store, "tail"> & Partial<Pick<Store, "tail">>;
