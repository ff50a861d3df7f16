/**
 * The interface of storage: sorted text keys with text values, atomic commits, compare-and-set. The engines are in this folder; the
 * layouts of keys are in keys.ts, and in the rooms of records that are collections.
 */

import { CommitConflict, unavailable } from "../lib/errors.ts";
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
  /** Only of stores in a file of their own. */
  readonly file?: StoreFile;
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

interface StoreFile {
  /** Tells it from other files, by whatever name and in whatever container it is seen. */
  id(): Promise<string>;
  /** Gives the space of deleted rows back to the disk, beside the commits. Resolves to a sentence about what it took before and takes now. */
  shrink(): Promise<string>;
}

/** A store as a plugin makes it. Without `tail` of its own it gets one that is made of `scan` and `get`. */
export type PluginStore = Omit<Store, "tail"> & Partial<Pick<Store, "tail">>;

// What to do where it does not matter which of several processes was first.

/** Resolves to false when another process has changed the rows before: it has done the same, or what was to be done is out of date. */
export const unlessConflict = async (commit: Promise<unknown>): Promise<boolean> =>
  (await nullOnConflict(commit)) !== null;

/** Resolves like the commit, or to null when another process has changed the rows before. */
export async function nullOnConflict<T>(commit: Promise<T>): Promise<T | null> {
  try {
    return await commit;
  } catch (error) {
    if (error instanceof CommitConflict) return null;
    throw error;
  }
}

/** How often a change is repeated after conflicts with other processes. */
const MAX_TRIES = 20;

/**
 * Reads and changes something until no other process changes it in between.
 *
 * @param what it is, for the error
 * @param change undefined to be repeated
 * @throws ServiceError `unavailable` when others change it all the time
 */
export async function changeInTurn<T>(what: string, change: () => Promise<T | undefined>): Promise<T> {
  for (let tries = 0; tries < MAX_TRIES; tries++) {
    try {
      const changed = await change();
      if (changed !== undefined) return changed;
    } catch (error) {
      if (!(error instanceof CommitConflict)) throw error;
    }
  }
  throw unavailable(`${what} is being changed all the time: try again`);
}

/** Removes a row, unless it has changed since it was read. */
export const removeUnchanged = (store: Store, { key, revision }: Pick<Row, "key" | "revision">): Promise<boolean> =>
  unlessConflict(store.commit({ delete: [key], expect: [[key, revision]] }));

// Whether other processes may use a store, and whether it outlives the process.

/** Stores that only one process can use. */
const UNSHARED_KINDS = new Set(["memory", "sqlite"]);

/** Whether other processes may use the store at the same time. If not, everything unfinished in it comes from a process that has ended. */
export const isShared = ({ kind }: Pick<Store, "kind">): boolean => !UNSHARED_KINDS.has(kind);

/** Whether the content of the store is lost when the process ends. */
export const isVolatile = ({ kind }: Pick<Store, "kind">): boolean => kind === "memory";

/*
 * Spaces of ids: the ids that clients choose are unique within a space. With isolation every user has a space of its own, so that two
 * users may have objects of the same id without noticing. Without isolation there is one shared space. A store may contain both
 * kinds, because isolation may be switched on and off: objects of both are found.
 */

/** The rows in which one id may be found. */
export interface IdKeys {
  /** The key in the shared space, or in that of a user. */
  of(owner?: string): string;
  /** Prefix of the keys in the spaces of all users. */
  ofUsers(): string;
}

export interface IdSpaces {
  /** Whether new objects get ids in the space of their owner. */
  readonly isolated: boolean;
  /** Whether any user has a space of its own; if not, only the shared space has to be searched. */
  readonly owned: boolean;
}

/** The object that an id leads to. */
export interface IdPlace {
  /** Internal number of the object. */
  readonly number: number;
  /** Whether the id is in the space of the object's owner, and not in the shared one. */
  readonly ownId: boolean;
}

/** How many objects of one id are looked at; a caller that needs another one has to name its user. */
export const MAX_ID_PLACES = 16;

/** @param ofUsers prefix of all ids in spaces of users, which may be left from a time when isolation was on */
export async function openIdSpaces(store: Store, isolated: boolean, ofUsers: string): Promise<IdSpaces> {
  return { isolated, owned: isolated || (await store.scan({ prefix: ofUsers, limit: 1 })).length > 0 };
}

/**
 * The object of an id for a user: in the user's space, else in the shared one, where the object may be another user's. One read.
 *
 * @param owner undefined: only the shared space is searched
 */
export async function findIdPlace(
  store: Store,
  spaces: IdSpaces,
  keys: IdKeys,
  owner: string | undefined,
): Promise<IdPlace | undefined> {
  if (owner === undefined || !spaces.owned) return sharedPlace(await store.get(keys.of()));
  const [own, shared] = await store.getMany([keys.of(owner), keys.of()]);
  return own === undefined ? sharedPlace(shared) : { number: Number(own.value), ownId: true };
}

/** The objects of an id in all spaces, at most `MAX_ID_PLACES`. */
export async function findIdPlaces(store: Store, spaces: IdSpaces, keys: IdKeys): Promise<IdPlace[]> {
  const range = { prefix: keys.ofUsers(), limit: MAX_ID_PLACES };
  const [row, owned] = await Promise.all([store.get(keys.of()), spaces.owned ? store.scan(range) : []]);
  const shared = sharedPlace(row);
  const places = owned.map(({ value }) => ({ number: Number(value), ownId: true }));
  return shared === undefined ? places : [shared, ...places].slice(0, MAX_ID_PLACES);
}

const sharedPlace = (row: Row | undefined): IdPlace | undefined =>
  row === undefined ? undefined : { number: Number(row.value), ownId: false };
