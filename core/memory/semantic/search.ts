/** Finds the vectors that are nearest to a query: candidates from the scan thread, compared again by their rows in the store. */
import type { VectorHit, VectorQuery } from "../../plugin/plugin.ts";
import { allRows } from "../../storage/ranges.ts";
import type { Store } from "../../storage/store.ts";
import { type IndexLayout, type OwnerKeys, shortPrefix } from "./layout.ts";
import { Nearest, similarity } from "./nearest.ts";
import { countOf, type OwnerVectors } from "./owner-vectors.ts";
import { readVector } from "./rows.ts";
import type { StoredVectors } from "./scan-thread.ts";
import type { MessagePlace } from "./semantic.ts";
import { rowsBelow, storedVectors } from "./stored-vectors.ts";
import type { CachedOwner, VectorCache } from "./vector-cache.ts";

/** More candidates than hits are wanted: bytes show the order of similar scores only roughly. */
export const candidatesFor = (limit: number): number => limit + (limit >> 2) + 16;
/** How far a score by bytes may be from the exact one, with room to spare. */
const ROUGHNESS = 0.05;
/** Decoding so many takes a millisecond. */
export const ROWS_PER_READ = 128;
/** Counters of one read, in a search of everybody's vectors. */
const OWNERS_PER_READ = 500;

/** One search, and what it has found. */
interface Search {
  readonly vector: Float32Array;
  readonly limit: number;
  readonly conversation: string | undefined;
  /** What the short keys begin with that are looked for. */
  readonly prefix: string;
  readonly nearest: Nearest<MessagePlace>;
  /** Keys of rows that were compared: a vector may be in a block and, newer, in a row. */
  readonly seen: Set<string>;
  readonly signal: AbortSignal | undefined;
}

interface Place {
  /** By the name that the thread knows. */
  readonly owner: string;
  readonly key: string;
  /** Its key in the store. */
  readonly row: string;
}

export class VectorSearch {
  readonly #store: Store;
  readonly #layout: IndexLayout;
  readonly #cache: VectorCache;
  readonly #owners: OwnerVectors;
  #pieces = 0;

  constructor(store: Store, layout: IndexLayout, cache: VectorCache, owners: OwnerVectors) {
    this.#store = store;
    this.#layout = layout;
    this.#cache = cache;
    this.#owners = owners;
  }

  async find({ vector, owner, conversation, limit, threshold, signal }: VectorQuery): Promise<VectorHit[]> {
    const nearest = new Nearest<MessagePlace>(limit, threshold);
    const prefix = conversation === undefined ? "" : shortPrefix(conversation);
    const search = { vector, limit, conversation, prefix, nearest, seen: new Set<string>(), signal };
    if (limit > 0) {
      if (owner === undefined) await this.#searchAll(search);
      else await this.#searchOwner(this.#layout.of(owner), search);
    }
    return nearest.list().map(({ score, item }) => ({ ...item, score }));
  }

  async #searchOwner(keys: OwnerKeys, search: Search): Promise<void> {
    if (await this.#searchShortConversation(keys, search)) return;
    const changes = countOf(await this.#store.get(keys.changes));
    // Nothing was ever stored of this owner.
    if (changes > 0) await this.#searchCurrent(keys, changes, search);
  }

  /**
   * A conversation that one read gives whole, of an owner who is not in the cache: the others of the owner may be many.
   *
   * @returns false when it was not searched
   */
  async #searchShortConversation(keys: OwnerKeys, search: Search): Promise<boolean> {
    if (search.conversation === undefined || this.#cache.peek(keys.vectors) !== undefined) return false;
    const prefix = keys.vectors + search.prefix;
    const rows = await this.#store.scan({ prefix, limit: ROWS_PER_READ });
    for (const { value } of rows) offer(search.nearest, search.vector, value);
    for (const { key } of rows) search.seen.add(key);
    return rows.length < ROWS_PER_READ;
  }

  async #searchCurrent(keys: OwnerKeys, changes: number, search: Search): Promise<void> {
    const cached = await this.#owners.current(keys, changes);
    // It may have been given up for another one in the meantime.
    if (cached === null || (await this.#searchCached([cached], search)).length > 0)
      await this.#searchStore(keys, search);
  }

  /** Owners whose vectors are in the cache are searched together, the others one after the other. */
  async #searchAll(search: Search): Promise<void> {
    for await (const rows of allRows(this.#store, { prefix: this.#layout.counters }, OWNERS_PER_READ)) {
      const owners = rows.map((row) => ({ keys: this.#layout.ofCounter(row.key), changes: countOf(row) }));
      const cached = owners.map(({ keys, changes }) => {
        const known = this.#cache.peek(keys.vectors);
        return known?.changes === changes ? known : undefined;
      });
      const missing = new Set(
        await this.#searchCached(
          cached.filter((one) => one !== undefined),
          search,
        ),
      );
      for (const [index, { keys, changes }] of owners.entries()) {
        search.signal?.throwIfAborted();
        if (cached[index] === undefined || missing.has(keys.vectors)) await this.#searchCurrent(keys, changes, search);
      }
    }
  }

  /** @returns those whom the thread does not know any more */
  async #searchCached(cached: readonly CachedOwner[], search: Search): Promise<readonly string[]> {
    if (cached.length === 0) return [];
    const known = new Map(cached.map((owner) => [owner.keys.vectors, { owner, changes: owner.changes }]));
    const prefixes = new Map([...known.keys()].map((name) => [name, name]));
    return this.#offer(prefixes, search, (name, gone) => {
      const { owner, changes } = known.get(name)!;
      // Not those that may have been written again meanwhile.
      if (owner.changes === changes) this.#cache.thread.remove(name, gone).catch(() => {});
    });
  }

  /** Compares the vectors piece by piece as they are read, and caches nothing. Of one conversation only those are read. */
  async #searchStore(keys: OwnerKeys, search: Search): Promise<void> {
    const { conversation, prefix } = search;
    const pieces =
      conversation === undefined
        ? storedVectors(this.#store, keys)
        : rowsBelow(this.#store, keys, keys.vectors + prefix);
    for await (const piece of pieces) await this.#searchPiece(keys, piece, search);
  }

  async #searchPiece(keys: OwnerKeys, piece: StoredVectors, search: Search): Promise<void> {
    search.signal?.throwIfAborted();
    const { thread } = this.#cache;
    const name = `${keys.vectors} ${this.#pieces++}`;
    try {
      await thread.add(name, piece);
      await this.#offer(new Map([[name, keys.vectors]]), search);
    } finally {
      thread.drop(name).catch(() => {});
    }
  }

  /**
   * Offers the nearest of these owners or pieces to the search. When some of the candidates are gone, it asks for more.
   *
   * @param prefixes of the rows, by the name that the thread knows
   * @param onGone called with short keys that have no row
   * @returns those that the thread does not know
   */
  async #offer(
    prefixes: ReadonlyMap<string, string>,
    search: Search,
    onGone?: (name: string, keys: readonly string[]) => void,
  ): Promise<readonly string[]> {
    const { vector: query, prefix, nearest } = search;
    const owners = [...prefixes.keys()];
    for (let limit = candidatesFor(search.limit); ; ) {
      search.signal?.throwIfAborted();
      const least = nearest.floor - ROUGHNESS;
      const { found, missing } = await this.#cache.thread.search({ owners, query, prefix, limit, least });
      const places = found.map(({ owner, key }) => ({ owner, key, row: prefixes.get(owner) + key }));
      const gone = await this.#compare(places, search);
      for (const [name, keys] of gone) onGone?.(name, keys);
      if (gone.size === 0 || found.length < limit) return missing;
      limit *= 2;
    }
  }

  /** Compares candidates by their rows, but for those seen before. @returns short keys without a row, by the name of the owner */
  async #compare(places: readonly Place[], { vector: query, nearest, seen, signal }: Search) {
    const gone = new Map<string, string[]>();
    // The earlier of two with the same score first.
    const unseen = places.filter(({ row }) => !seen.has(row)).sort((a, b) => (a.row < b.row ? -1 : 1));
    for (let start = 0; start < unseen.length; start += ROWS_PER_READ) {
      signal?.throwIfAborted();
      const read = unseen.slice(start, start + ROWS_PER_READ);
      const rows = await this.#store.getMany(read.map(({ row }) => row));
      for (const [index, { owner, key, row }] of read.entries()) {
        seen.add(row);
        const value = rows[index]?.value;
        if (value !== undefined) offer(nearest, query, value);
        else if (gone.has(owner)) gone.get(owner)!.push(key);
        else gone.set(owner, [key]);
      }
    }
    return gone;
  }
}

export function offer(nearest: Nearest<MessagePlace>, query: Float32Array, value: string): void {
  const { vector, ...place } = readVector(value);
  if (vector.length === query.length) nearest.offer(similarity(query, vector, 0), place);
}
