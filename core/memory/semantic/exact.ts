/**
 * `exact`: vectors in the store beside the messages, compared one by one. An owner's vectors are read with the first search
 * and kept in memory, bounded; a counter in the store tells whether they are still all there is.
 */

import { CommitConflict } from "../../lib/errors.ts";
import type { VectorEntry, VectorHit, VectorQuery, Vectors } from "../../plugin/plugin.ts";
import type { Commit, Store } from "../../storage/store.ts";
import type { Layout } from "./layout.ts";
import { Nearest, similarity } from "./nearest.ts";
import { readVector, type VectorRow, writeVector } from "./rows.ts";
import { createDraft, type Draft, type MessagePlace } from "./semantic.ts";
import type { IndexState } from "./state.ts";
import { OwnerVectors, VectorCache } from "./vector-cache.ts";
import type { FinishedRow, VectorIndex } from "./vector-index.ts";

/** Rows read at once: a megabyte or two. */
const PAGE = 500;
/** Bytes of vectors in memory: a good twenty thousand of 512 dimensions. */
const CACHE = 48 * 1024 * 1024;
/** Owners known to have more than fits; more than these are found out again. */
const LARGE_OWNERS = 1_000;

export class ExactVectors implements VectorIndex, Vectors {
  readonly #store: Store;
  readonly #layout: Layout;
  readonly #state: IndexState | null;
  readonly #cache: VectorCache;
  readonly #loading = new Map<string, { changes: number; vectors: Promise<OwnerVectors | null> }>();
  readonly #large = new Set<string>();

  /** @param state what commits of vectors depend on; null for vectors of unchecked origin */
  constructor(store: Store, layout: Layout, state: IndexState | null, cacheBytes = CACHE) {
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
      // Saved anew or deleted in the meantime: whoever did it has said so to the queue.
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
    // One that was read while this was written may or may not have it; the counter will tell.
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

  /** Drops what is in memory. */
  forget(): void {
    this.#cache.clear();
    this.#large.clear();
  }

  async search(query: VectorQuery): Promise<VectorHit[]> {
    const { owner, conversation, vector, signal } = query;
    const nearest = new Nearest<MessagePlace>(query.limit, query.threshold);
    const found = owner === undefined ? null : await this.#ownerVectors(owner);
    if (found !== null) await found.search(vector, conversation, nearest);
    else await this.#stream(vector, this.#layout.vectors(owner, conversation), conversation, nearest, signal);
    return nearest.list().map(({ score, item }) => ({ ...item, score }));
  }

  /** Null when they are too many to keep. */
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

  /** `changes` was read before: what is written meanwhile may be in or not, and its counter makes the next search look. */
  async #load(owner: string, changes: number): Promise<OwnerVectors | null> {
    const vectors = new OwnerVectors(owner, changes);
    for await (const row of this.#rows(this.#layout.vectors(owner))) {
      vectors.set(row);
      if (vectors.bytes <= this.#cache.limit) continue;
      if (this.#large.size >= LARGE_OWNERS) this.#large.clear();
      this.#large.add(owner);
      return null;
    }
    this.#cache.set(vectors);
    return vectors;
  }

  /** Compares what it reads and keeps nothing. */
  async #stream(
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
    let after: string | undefined;
    for (;;) {
      const rows = await this.#store.scan({ prefix, after, limit: PAGE });
      for (const { value } of rows) yield readVector(value);
      if (rows.length < PAGE) return;
      after = rows[rows.length - 1]!.key;
    }
  }
}
