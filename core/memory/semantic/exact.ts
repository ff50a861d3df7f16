/**
 * `exact`: vectors in the store beside the messages. Each is a row of its own, which a commit writes or deletes together with the message.
 * A search compares all vectors of an owner in memory, and the best of them again by their rows. So nothing is found whose row is gone,
 * whatever is in memory. Where the database of the store compares vectors by itself, it names the candidates.
 */
import { CommitConflict } from "../../lib/errors.ts";
import type { VectorEntry, VectorHit, VectorQuery, Vectors } from "../../plugin/plugin.ts";
import type { Commit, Store } from "../../storage/store.ts";
import type { VectorTables } from "../../storage/vector-tables.ts";
import type { IndexLayout } from "./layout.ts";
import { type VectorRow, writeVector } from "./rows.ts";
import { searchVectors } from "./search.ts";
import { createDraft, type Draft, type MessagePlace } from "./semantic.ts";
import type { IndexState } from "./state.ts";
import { VectorCache } from "./vector-cache.ts";
import type { FinishedRow, VectorIndex } from "./vector-index.ts";

interface ExactOptions {
  cache?: VectorCache;
  /** Of a store whose database compares vectors by itself. */
  tables?: VectorTables | undefined;
}

export class ExactVectors implements VectorIndex, Vectors {
  readonly #store: Store;
  readonly #layout: IndexLayout;
  readonly #state: IndexState | null;
  readonly #cache: VectorCache;
  readonly #tables: VectorTables | undefined;

  /** @param state what commits of vectors expect to be unchanged; null to write vectors without that check */
  constructor(store: Store, layout: IndexLayout, state: IndexState | null, options: ExactOptions = {}) {
    this.#store = store;
    this.#layout = layout;
    this.#state = state;
    this.#cache = options.cache ?? new VectorCache();
    this.#tables = options.tables;
  }

  async idle(): Promise<void> {
    await this.#tables?.idle();
  }

  dropMessages(draft: Draft, places: readonly MessagePlace[]): void {
    for (const place of places) draft.delete.push(this.#layout.vector(place), this.#layout.wait(place));
  }

  dropConversation(draft: Draft, owner: string, conversation: string): void {
    draft.clear.push(this.#layout.vectors(owner, conversation), this.#layout.waiting(owner, conversation));
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

  async #write(row: VectorRow, { delete: gone = [], expect = [] }: Commit): Promise<void> {
    const owner = this.#layout.vectors(row.owner);
    const key = this.#layout.vector(row);
    const cached = this.#cache.peek(owner);
    const revision = await this.#store.commit({
      put: [[key, writeVector(row)]],
      add: [[this.#layout.counter(row.owner), 1]],
      delete: gone,
      expect: this.#state === null ? expect : [...expect, this.#state.expectation],
    });
    this.#tables?.wake();
    this.#cache.written(owner, cached, key, revision, row.vector);
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
    this.#cache.forget(this.#layout.vectors());
  }

  search(query: VectorQuery): Promise<VectorHit[]> {
    const [store, layout, cache, tables] = [this.#store, this.#layout, this.#cache, this.#tables];
    return searchVectors({ store, layout, cache, tables }, query);
  }
}
