/**
 * `exact`: vectors in the store beside the messages, compared one by one. The first search of an owner reads the owner's vectors into a
 * bounded cache. A counter in the store rises with every change, so that the cache notices when it is out of date.
 */
import { CommitConflict } from "../../lib/errors.ts";
import type { VectorEntry, VectorHit, VectorQuery, Vectors } from "../../plugin/plugin.ts";
import { allRows } from "../../storage/ranges.ts";
import type { Commit, Store } from "../../storage/store.ts";
import type { Layout } from "./layout.ts";
import { Nearest, similarity } from "./nearest.ts";
import { readVector, type VectorRow, writeVector } from "./rows.ts";
import { createDraft, type Draft, type MessagePlace } from "./semantic.ts";
import type { IndexState } from "./state.ts";
import { OwnerVectors, VectorCache } from "./vector-cache.ts";
import type { FinishedRow, VectorIndex } from "./vector-index.ts";

/** One read is a megabyte or two. */
const ROWS_PER_READ = 500;
/** Room for a good twenty thousand vectors of 512 dimensions. */
const CACHE_BYTES = 48 * 1024 * 1024;
/** Owners remembered to have more vectors than the cache holds; beyond this number they are found out again. */
const MAX_LARGE_OWNERS = 1_000;

export class ExactVectors implements VectorIndex, Vectors {
  readonly #store: Store;
  readonly #layout: Layout;
  readonly #state: IndexState | null;
  readonly #cache: VectorCache;
  readonly #loading = new Map<string, { changes: number; vectors: Promise<OwnerVectors | null> }>();
  readonly #large = new Set<string>();

  /** @param state what commits of vectors expect to be unchanged; null to write vectors without that check */
  constructor(store: Store, layout: Layout, state: IndexState | null, cacheBytes = CACHE_BYTES) {
    this.#store = store;
    this.#layout = layout;
    this.#state = state;
    this.#cache = new VectorCache(cacheBytes);
  }

  dropMessages(draft: Draft, places: readonly MessagePlace[]): void {
    const owners = new Map<string, number>();
    for (const place of places) {
      draft.delete.push(this.#layout.vector(place), this.#layout.wait(place));
      owners.set(place.owner, (owners.get(place.owner) ?? 0) + 1);
    }
    for (const [owner, count] of owners) draft.add.push([this.#layout.changes(owner), count]);
  }

  dropConversation(draft: Draft, owner: string, conversation: string): void {
    draft.clear.push(this.#layout.vectors(owner, conversation), this.#layout.waiting(owner, conversation));
    draft.add.push([this.#layout.changes(owner), 1]);
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
    const { owner } = row;
    const cached = this.#cache.peek(owner);
    const state = this.#state === null ? [] : [this.#state.expectation];
    await this.#store.commit({
      put: [[this.#layout.vector(row), writeVector(row)]],
      add: [[this.#layout.changes(owner), 1]],
      delete: beside.delete,
      expect: [...(beside.expect ?? []), ...state],
    });
    // Vectors that were loaded during this commit may or may not include the new one; the counter shows it.
    if (cached !== undefined && this.#cache.peek(owner) === cached) this.#cache.add(cached, row);
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
    await this.#store.commit({ clear: [this.#layout.vectors()] });
    this.forget();
  }

  /** Empties the cache. */
  forget(): void {
    this.#cache.clear();
    this.#large.clear();
  }

  async search(query: VectorQuery): Promise<VectorHit[]> {
    const { owner, conversation, vector, signal } = query;
    const nearest = new Nearest<MessagePlace>(query.limit, query.threshold);
    const found = owner === undefined ? null : await this.#ownerVectors(owner);
    if (found !== null) await found.search(vector, conversation, nearest);
    else await this.#searchStore(vector, this.#layout.vectors(owner, conversation), conversation, nearest, signal);
    return nearest.list().map(({ score, item }) => ({ ...item, score }));
  }

  /** Null when they do not fit into the cache. */
  async #ownerVectors(owner: string): Promise<OwnerVectors | null> {
    if (this.#large.has(owner)) return null;
    const row = await this.#store.get(this.#layout.changes(owner));
    const changes = Number(row?.value ?? 0);
    const cached = this.#cache.get(owner);
    if (cached?.changes === changes) return cached;
    const loading = this.#loading.get(owner);
    if (loading?.changes === changes) return loading.vectors;
    const vectors = this.#load(owner, changes);
    this.#loading.set(owner, { changes, vectors });
    try {
      return await vectors;
    } finally {
      if (this.#loading.get(owner)?.vectors === vectors) this.#loading.delete(owner);
    }
  }

  /** `changes` was read before the vectors: whatever is written meanwhile raises the counter, so that the next search loads again. */
  async #load(owner: string, changes: number): Promise<OwnerVectors | null> {
    const vectors = new OwnerVectors(owner, changes);
    for await (const row of this.#rows(this.#layout.vectors(owner))) {
      vectors.set(row);
      if (vectors.bytes <= this.#cache.limit) continue;
      if (this.#large.size >= MAX_LARGE_OWNERS) this.#large.clear();
      this.#large.add(owner);
      return null;
    }
    this.#cache.set(vectors);
    return vectors;
  }

  /** Compares the vectors while it reads them, and caches nothing. */
  async #searchStore(
    query: Float32Array,
    prefix: string,
    conversation: string | undefined,
    nearest: Nearest<MessagePlace>,
    signal: AbortSignal | undefined,
  ): Promise<void> {
    for await (const row of this.#rows(prefix)) {
      signal?.throwIfAborted();
      const { vector, ...place } = row;
      if (vector.length !== query.length || (conversation !== undefined && place.conversation !== conversation))
        continue;
      nearest.offer(similarity(query, vector, 0), place);
    }
  }

  async *#rows(prefix: string): AsyncGenerator<VectorRow> {
    for await (const rows of allRows(this.#store, { prefix }, ROWS_PER_READ)) {
      for (const { value } of rows) yield readVector(value);
    }
  }
}
