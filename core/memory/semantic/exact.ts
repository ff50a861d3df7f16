/**
 * `exact`: vectors in the store beside the messages. Each is a row of its own, which a commit writes or deletes together with the message.
 * A thread compares all vectors of an owner roughly, as bytes, and names candidates; these are compared again by their rows. So scores
 * are exact, and nothing is found whose row is gone, whatever the thread still knows. Where the database of the store compares vectors by
 * itself, it names the candidates.
 */
import type { Logger } from "pino";
import { CommitConflict } from "../../lib/errors.ts";
import { RecentMap } from "../../lib/recent-map.ts";
import type { VectorEntry, VectorHit, VectorQuery, Vectors } from "../../plugin/plugin.ts";
import type { Commit, Store } from "../../storage/store.ts";
import type { VectorTables } from "../../storage/vector-tables.ts";
import { BlockCleaner } from "./block-cleaner.ts";
import { type IndexLayout, type OwnerKeys, shortKey } from "./layout.ts";
import { OwnerVectors } from "./owner-vectors.ts";
import { Packer, VECTORS_PER_BLOCK } from "./packer.ts";
import { type VectorRow, writeVector } from "./rows.ts";
import { VectorSearch } from "./search.ts";
import { createDraft, type Draft, type MessagePlace } from "./semantic.ts";
import type { IndexState } from "./state.ts";
import { TableSearch } from "./table-search.ts";
import { VectorCache } from "./vector-cache.ts";
import type { FinishedRow, VectorIndex } from "./vector-index.ts";

/** Owners whose writes are counted. */
const COUNTED_OWNERS = 10_000;

interface ExactOptions {
  cache?: VectorCache;
  /** Stops the work in the background. */
  signal?: AbortSignal;
  logger?: Logger;
  /** Of a store whose database compares vectors by itself. */
  tables?: VectorTables;
}

export class ExactVectors implements VectorIndex, Vectors {
  readonly #store: Store;
  readonly #layout: IndexLayout;
  readonly #state: IndexState | null;
  readonly #cache: VectorCache;
  readonly #packer: Packer;
  readonly #cleaner: BlockCleaner;
  readonly #search: Pick<VectorSearch, "find">;
  readonly #tables: VectorTables | undefined;
  /** How many vectors of an owner were written since they were last packed, of owners with blocks. */
  #packed = new RecentMap<number>(COUNTED_OWNERS);
  /** The same of owners who had no blocks when one was last written. */
  #unpacked = new RecentMap<number>(COUNTED_OWNERS);

  /** @param state what commits of vectors expect to be unchanged; null to write vectors without that check */
  constructor(store: Store, layout: IndexLayout, state: IndexState | null, options: ExactOptions = {}) {
    const { cache = new VectorCache(), signal, logger, tables } = options;
    this.#store = store;
    this.#layout = layout;
    this.#state = state;
    this.#cache = cache;
    this.#packer = new Packer({ store, state, thread: cache.thread, signal, logger });
    this.#cleaner = new BlockCleaner({ store, layout, thread: cache.thread, signal, logger });
    const owners = new OwnerVectors(store, cache, (keys) => {
      if (tables === undefined) this.#packer.check(keys);
    });
    const search = new VectorSearch(store, layout, cache, owners);
    this.#search = tables === undefined ? search : new TableSearch(store, layout, tables, search);
    this.#tables = tables;
  }

  start(): void {
    this.#cleaner.start();
  }

  async idle(): Promise<void> {
    await Promise.all([this.#packer.idle(), this.#cleaner.idle(), this.#tables?.idle()]);
  }

  dropMessages(draft: Draft, places: readonly MessagePlace[]): void {
    const owners = new Map<string, number>();
    for (const place of places) {
      draft.delete.push(this.#layout.vector(place), this.#layout.wait(place));
      owners.set(place.owner, (owners.get(place.owner) ?? 0) + 1);
    }
    for (const [owner, count] of owners) this.#cleaner.deletes(draft, this.#layout.of(owner), count);
  }

  dropConversation(draft: Draft, owner: string, conversation: string): void {
    draft.clear.push(this.#layout.vectors(owner, conversation), this.#layout.waiting(owner, conversation));
    this.#cleaner.deletes(draft, this.#layout.of(owner), 1);
  }

  async finish(finished: readonly FinishedRow[]): Promise<void> {
    const results = await Promise.allSettled(finished.map((one) => this.#finishOne(one)));
    const failed = results.find((result) => result.status === "rejected");
    if (failed !== undefined) throw failed.reason;
  }

  async #finishOne({ key, revision, row }: FinishedRow): Promise<void> {
    const expect = [[key, revision] as const];
    try {
      if (row === undefined) await this.#store.commit({ delete: [key], expect });
      else await this.#write(row, { delete: [key], expect });
    } catch (error) {
      // Saved again or deleted in the meantime, in a commit that has put its own row into the queue or removed it.
      if (!(error instanceof CommitConflict && error.keys.includes(key))) throw error;
    }
  }

  async #write(row: VectorRow, beside: Commit): Promise<void> {
    const keys = this.#layout.of(row.owner);
    const key = shortKey(row);
    const value = writeVector(row);
    const cached = this.#cache.peek(keys.vectors);
    try {
      await this.#commit(keys, key, value, beside);
    } catch (error) {
      if (!(error instanceof CommitConflict && error.keys.length === 1 && error.keys[0] === keys.pack)) throw error;
      // Blocks of this owner have been begun.
      this.#packed.set(keys.vectors, 0);
      await this.#commit(keys, key, value, beside);
    }
    this.#count(keys);
    // Vectors that were read during this commit may or may not include the new one; the counter shows it.
    if (cached === undefined || this.#cache.peek(keys.vectors) !== cached) return;
    this.#cache.add(cached, { keys: [key], rows: [value] }).catch(() => {});
    cached.changes++;
  }

  /** Of an owner with blocks the vector is noted as recent. It must not be missing there, so that other commits expect that there are none. */
  async #commit(keys: OwnerKeys, key: string, value: string, beside: Commit): Promise<void> {
    const isPacked = this.#packed.get(keys.vectors) !== undefined;
    await this.#store.commit({
      put: [[keys.vectors + key, value], ...(isPacked ? [[keys.recent + key, "1"] as const] : [])],
      add: [[keys.changes, 1]],
      delete: beside.delete ?? [],
      expect: [
        ...(beside.expect ?? []),
        ...(this.#state === null ? [] : [this.#state.expectation]),
        ...(isPacked ? [] : [[keys.pack, null] as const]),
      ],
    });
  }

  #count(keys: OwnerKeys): void {
    const known = this.#packed.get(keys.vectors);
    if (this.#tables !== undefined) {
      this.#tables.wake();
      // What the database compares needs no blocks, but those of before go on: otherwise what is recent would never end.
      if (known === undefined) return;
    }
    const counts = known === undefined ? this.#unpacked : this.#packed;
    const count = (counts.get(keys.vectors) ?? 0) + 1;
    counts.set(keys.vectors, count % VECTORS_PER_BLOCK);
    if (count === VECTORS_PER_BLOCK) this.#packer.check(keys);
  }

  async put(entries: readonly VectorEntry[]): Promise<void> {
    await Promise.all(entries.map((entry) => this.#write(entry, {})));
  }

  async delete(places: readonly { owner: string; conversation: string; message?: string }[]): Promise<void> {
    const draft = createDraft();
    for (const { owner, conversation, message } of places) {
      if (message === undefined) this.dropConversation(draft, owner, conversation);
      else this.dropMessages(draft, [{ owner, conversation, message }]);
    }
    await this.#store.commit(draft);
  }

  async clear(): Promise<void> {
    await this.#store.commit({ clear: [this.#layout.vectors(), this.#layout.packs, this.#layout.deletions] });
    this.#cache.forget(this.#layout.vectors());
    this.#packed = new RecentMap(COUNTED_OWNERS);
    this.#unpacked = new RecentMap(COUNTED_OWNERS);
  }

  search(query: VectorQuery): Promise<VectorHit[]> {
    return this.#search.find(query);
  }
}
