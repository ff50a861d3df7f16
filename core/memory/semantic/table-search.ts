/** Finds the vectors that are nearest to a query: candidates from the tables of the store's database, compared again by their rows. */
import type { VectorHit, VectorQuery } from "../../plugin/plugin.ts";
import type { Store } from "../../storage/store.ts";
import type { VectorTables } from "../../storage/vector-tables.ts";
import type { IndexLayout } from "./layout.ts";
import { Nearest } from "./nearest.ts";
import { candidatesFor, offer, ROWS_PER_READ, type VectorSearch } from "./search.ts";
import type { MessagePlace } from "./semantic.ts";

export class TableSearch {
  readonly #store: Store;
  readonly #layout: IndexLayout;
  readonly #tables: VectorTables;
  readonly #otherwise: Pick<VectorSearch, "find">;

  /** @param otherwise for the time in which the tables have only a part of the rows */
  constructor(store: Store, layout: IndexLayout, tables: VectorTables, otherwise: Pick<VectorSearch, "find">) {
    this.#store = store;
    this.#layout = layout;
    this.#tables = tables;
    this.#otherwise = otherwise;
  }

  async find(query: VectorQuery): Promise<VectorHit[]> {
    const { vector, owner, conversation, limit, threshold, signal } = query;
    if (limit === 0) return [];
    const prefix = this.#layout.vectors(owner, owner === undefined ? undefined : conversation);
    const found = await this.#tables.nearest({ prefix, vector, limit: candidatesFor(limit) });
    if (found === null) return this.#otherwise.find(query);
    const nearest = new Nearest<MessagePlace>(limit, threshold);
    // The earlier of two with the same score first.
    const keys = [...new Set([...found.keys, ...found.unfilled])].sort();
    for (let start = 0; start < keys.length; start += ROWS_PER_READ) {
      signal?.throwIfAborted();
      // Only rows of this owner are asked for, whatever the tables say.
      const wanted = keys.slice(start, start + ROWS_PER_READ).filter((key) => key.startsWith(prefix));
      for (const row of await this.#store.getMany(wanted)) if (row !== undefined) offer(nearest, vector, row.value);
    }
    return nearest.list().map(({ score, item }) => ({ ...item, score }));
  }
}
