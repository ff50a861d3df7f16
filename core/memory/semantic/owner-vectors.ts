/** Brings the vectors of owners into the cache, and keeps them as new as a counter in the store says. */
import type { Row, Store } from "../../storage/store.ts";
import type { OwnerKeys } from "./layout.ts";
import { VECTORS_PER_BLOCK } from "./packer.ts";
import { storedVectors } from "./stored-vectors.ts";
import type { CachedOwner, VectorCache } from "./vector-cache.ts";

interface Loading {
  readonly changes: number;
  readonly owner: Promise<CachedOwner | null>;
}

export const countOf = (row: Row | undefined): number => Number(row?.value ?? 0);

export class OwnerVectors {
  readonly #store: Store;
  readonly #cache: VectorCache;
  readonly #loading = new Map<string, Loading>();
  readonly #onManyRows: (keys: OwnerKeys) => void;

  /** @param onManyRows called with an owner of whom many vectors were read that are not packed */
  constructor(store: Store, cache: VectorCache, onManyRows: (keys: OwnerKeys) => void) {
    this.#store = store;
    this.#cache = cache;
    this.#onManyRows = onManyRows;
  }

  /**
   * The owner in the cache, with all vectors that were written before the counter had this value. Null: they do not fit into it.
   * Searches at the same time read them once.
   */
  async current(keys: OwnerKeys, changes: number): Promise<CachedOwner | null> {
    const name = keys.vectors;
    for (;;) {
      if (this.#cache.isLarge(name)) return null;
      if (this.#cache.peek(name)?.changes === changes) return this.#cache.get(name)!;
      const loading = this.#loading.get(name);
      if (loading === undefined) break;
      if (loading.changes >= changes) return loading.owner;
      await loading.owner.catch(() => {});
    }
    const owner = this.#load(keys, changes);
    this.#loading.set(name, { changes, owner });
    try {
      return await owner;
    } finally {
      this.#loading.delete(name);
    }
  }

  /** `changes` was read before the vectors: whatever is written meanwhile raises the counter, so that the next search reads again. */
  async #load(keys: OwnerKeys, changes: number): Promise<CachedOwner | null> {
    const owner = this.#cache.begin(keys);
    let rows = 0;
    try {
      // So that the thread knows the owner, even one without vectors.
      if (!(await this.#cache.add(owner, { blocks: [] }))) return null;
      for await (const vectors of storedVectors(this.#store, keys, owner.progress)) {
        if ("rows" in vectors) rows += vectors.rows.length;
        if (!(await this.#cache.add(owner, vectors))) return null;
      }
    } catch (error) {
      this.#cache.drop(owner);
      throw error;
    }
    owner.changes = changes;
    if (rows >= VECTORS_PER_BLOCK) this.#onManyRows(keys);
    return owner;
  }
}
