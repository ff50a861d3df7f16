/** The vectors of owners who search, in memory: a bounded number of bytes, of which the least recently used are given up. */
import { nextTurn } from "../../lib/event-loop-turns.ts";
import { longestOfMany, wholeRows } from "../../storage/ranges.ts";
import type { Row, Store } from "../../storage/store.ts";
import { Matrix } from "./matrix.ts";
import { readVector } from "./rows.ts";

/** Room for 270,000 vectors of 512 dimensions, or 110,000 of 1,536. */
const CACHE_BYTES = 192 * 1024 * 1024;
/** What an owner costs who has no vectors. */
const OWNER_BYTES = 1_000;
/** Owners remembered to have more vectors than the cache holds; beyond this number they are found out again. */
const MAX_LARGE_OWNERS = 1_000;
/** A row has some thousand characters. */
const ROWS_PER_READ = 256;
const KEYS_PER_READ = 2_000;

/** The vectors of an owner as of the value `changes` of the owner's counter; NaN while they are being read. */
interface CachedOwner {
  changes: number;
  readonly matrix: Matrix;
  bytes: number;
}

interface Loading {
  readonly changes: number;
  readonly owner: Promise<CachedOwner | null>;
}

export type VectorCache = ReturnType<typeof createVectorCache>;

/** One for all memories of a service. Owners go by the prefix of their vectors. */
/** @param limit bytes of all owners together */
export function createVectorCache(limit = CACHE_BYTES) {
  /** The least recently used first. */
  const owners = new Map<string, CachedOwner>();
  const large = new Set<string>();
  const loads = new Map<string, Loading>();
  let total = 0;

  /** What is there, which does not count as use. */
  function peek(prefix: string): CachedOwner | undefined {
    return owners.get(prefix);
  }

  /**
   * The owner with all vectors that were written before the counter had this value. Null: they do not fit into the cache.
   * Searches at the same time read them once.
   */
  async function current(store: Store, prefix: string, changes: number): Promise<CachedOwner | null> {
    for (;;) {
      if (large.has(prefix)) return null;
      const known = owners.get(prefix);
      if (known?.changes === changes) return use(prefix, known);
      const loading = loads.get(prefix);
      if (loading === undefined) break;
      if (loading.changes >= changes) return loading.owner;
      await loading.owner.catch(() => {});
    }
    const owner = load(store, prefix, changes);
    loads.set(prefix, { changes, owner });
    try {
      return await owner;
    } finally {
      loads.delete(prefix);
    }
  }

  /** Adds a vector that this process has written, unless the owner was read, or given up, while that was committed. */
  function written(
    prefix: string,
    before: CachedOwner | undefined,
    key: string,
    revision: number,
    vector: Float32Array,
  ): void {
    if (before === undefined || owners.get(prefix) !== before) return;
    before.matrix.add(key, revision, vector);
    before.changes++;
    fits(prefix, before);
  }

  /** Drops all owners whose vectors have this prefix. */
  function forget(prefix: string): void {
    for (const name of owners.keys()) if (name.startsWith(prefix)) drop(name);
    for (const name of large) if (name.startsWith(prefix)) large.delete(name);
  }

  /** `changes` was read before the vectors: whatever is written meanwhile raises the counter, so that the next search reads again. */
  async function load(store: Store, prefix: string, changes: number): Promise<CachedOwner | null> {
    const { matrix, bytes } = owners.get(prefix) ?? { matrix: new Matrix(), bytes: 0 };
    const owner = use(prefix, { changes: Number.NaN, matrix, bytes });
    try {
      if (!fits(prefix, owner)) return null;
      for await (const rows of changedRows(store, prefix, matrix)) {
        for (const { key, revision, value } of rows) matrix.add(key, revision, readVector(value).vector);
        if (owners.get(prefix) !== owner || !fits(prefix, owner)) return null;
      }
    } catch (error) {
      if (owners.get(prefix) === owner) drop(prefix);
      throw error;
    }
    owner.changes = changes;
    return owner;
  }

  function use(prefix: string, owner: CachedOwner): CachedOwner {
    owners.delete(prefix);
    owners.set(prefix, owner);
    return owner;
  }

  /** Counts the bytes of an owner, and gives up others for them. @returns false when the owner alone does not fit, and is given up */
  function fits(prefix: string, owner: CachedOwner): boolean {
    const bytes = OWNER_BYTES + owner.matrix.bytes;
    total += bytes - owner.bytes;
    owner.bytes = bytes;
    if (bytes > limit) {
      if (large.size >= MAX_LARGE_OWNERS) large.clear();
      large.add(prefix);
      drop(prefix);
      return false;
    }
    for (const other of owners.keys()) {
      if (total <= limit) break;
      if (other !== prefix) drop(other);
    }
    return true;
  }

  function drop(prefix: string): void {
    total -= owners.get(prefix)?.bytes ?? 0;
    owners.delete(prefix);
  }

  return {
    get bytes(): number {
      return total;
    },
    peek,
    current,
    written,
    forget,
  };
}

/** The rows that are not in the matrix as they are now. Of those that are there only the keys are read, and what is gone is removed. */
async function* changedRows(store: Store, prefix: string, matrix: Matrix): AsyncGenerator<Row[], void> {
  const gone = new Set(matrix.keys);
  const limit = gone.size === 0 ? ROWS_PER_READ : KEYS_PER_READ;
  const longest = gone.size === 0 ? longestOfMany(limit) : 0;
  for (let after: string | undefined = ""; after !== undefined; ) {
    const rows: Row[] = await store.scan({ prefix, after, limit, longest });
    for (const { key } of rows) gone.delete(key);
    yield* wholeRows(
      store,
      rows.filter(({ key, revision }) => matrix.revision(key) !== revision),
    );
    after = rows.length < limit ? undefined : rows.at(-1)!.key;
    if (after !== undefined) await nextTurn();
  }
  for (const key of gone) matrix.remove(key);
}
