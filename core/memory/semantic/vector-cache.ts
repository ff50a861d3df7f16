/** The vectors of owners who search, in memory: a bounded number of bytes, of which the least recently used are given up. */
import { nextTurn } from "../../lib/event-loop-turns.ts";
import { longestOfMany, wholeRows } from "../../storage/large-rows.ts";
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

/** One for all memories of a service. Owners go by the prefix of their vectors. */
export class VectorCache {
  /** The least recently used first. */
  readonly #owners = new Map<string, CachedOwner>();
  readonly #large = new Set<string>();
  readonly #loading = new Map<string, Loading>();
  readonly #limit: number;
  #bytes = 0;

  /** @param limit bytes of all owners together */
  constructor(limit = CACHE_BYTES) {
    this.#limit = limit;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** What is there, which does not count as use. */
  peek(prefix: string): CachedOwner | undefined {
    return this.#owners.get(prefix);
  }

  /**
   * The owner with all vectors that were written before the counter had this value. Null: they do not fit into the cache.
   * Searches at the same time read them once.
   */
  async current(store: Store, prefix: string, changes: number): Promise<CachedOwner | null> {
    for (;;) {
      if (this.#large.has(prefix)) return null;
      const known = this.#owners.get(prefix);
      if (known?.changes === changes) return this.#use(prefix, known);
      const loading = this.#loading.get(prefix);
      if (loading === undefined) break;
      if (loading.changes >= changes) return loading.owner;
      await loading.owner.catch(() => {});
    }
    const owner = this.#load(store, prefix, changes);
    this.#loading.set(prefix, { changes, owner });
    try {
      return await owner;
    } finally {
      this.#loading.delete(prefix);
    }
  }

  /** Adds a vector that this process has written, unless the owner was read, or given up, while that was committed. */
  written(prefix: string, before: CachedOwner | undefined, key: string, revision: number, vector: Float32Array): void {
    if (before === undefined || this.#owners.get(prefix) !== before) return;
    before.matrix.add(key, revision, vector);
    before.changes++;
    this.#fits(prefix, before);
  }

  /** Drops all owners whose vectors have this prefix. */
  forget(prefix: string): void {
    for (const name of this.#owners.keys()) if (name.startsWith(prefix)) this.#drop(name);
    for (const name of this.#large) if (name.startsWith(prefix)) this.#large.delete(name);
  }

  /** `changes` was read before the vectors: whatever is written meanwhile raises the counter, so that the next search reads again. */
  async #load(store: Store, prefix: string, changes: number): Promise<CachedOwner | null> {
    const { matrix, bytes } = this.#owners.get(prefix) ?? { matrix: new Matrix(), bytes: 0 };
    const owner = this.#use(prefix, { changes: Number.NaN, matrix, bytes });
    try {
      if (!this.#fits(prefix, owner)) return null;
      for await (const rows of changedRows(store, prefix, matrix)) {
        for (const { key, revision, value } of rows) matrix.add(key, revision, readVector(value).vector);
        if (this.#owners.get(prefix) !== owner || !this.#fits(prefix, owner)) return null;
      }
    } catch (error) {
      if (this.#owners.get(prefix) === owner) this.#drop(prefix);
      throw error;
    }
    owner.changes = changes;
    return owner;
  }

  #use(prefix: string, owner: CachedOwner): CachedOwner {
    this.#owners.delete(prefix);
    this.#owners.set(prefix, owner);
    return owner;
  }

  /** Counts the bytes of an owner, and gives up others for them. @returns false when the owner alone does not fit, and is given up */
  #fits(prefix: string, owner: CachedOwner): boolean {
    const bytes = OWNER_BYTES + owner.matrix.bytes;
    this.#bytes += bytes - owner.bytes;
    owner.bytes = bytes;
    if (bytes > this.#limit) {
      if (this.#large.size >= MAX_LARGE_OWNERS) this.#large.clear();
      this.#large.add(prefix);
      this.#drop(prefix);
      return false;
    }
    for (const other of this.#owners.keys()) {
      if (this.#bytes <= this.#limit) break;
      if (other !== prefix) this.#drop(other);
    }
    return true;
  }

  #drop(prefix: string): void {
    this.#bytes -= this.#owners.get(prefix)?.bytes ?? 0;
    this.#owners.delete(prefix);
  }
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
