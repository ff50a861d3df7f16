/**
 * `exact`: vectors in the store beside the messages. Each is a row of its own, which a commit writes or deletes together with the message.
 * A search compares all vectors of an owner in memory, and the best of them again by their rows. So nothing is found whose row is gone,
 * whatever is in memory. Where the database of the store compares vectors by itself, it names the candidates.
 */
import { CommitConflict } from "../../lib/errors.ts";
import { nextTurn } from "../../lib/event-loop-turns.ts";
import type { VectorEntry, VectorHit, VectorQuery } from "../../plugin/plugin.ts";
import { allRows } from "../../storage/ranges.ts";
import type { Commit, Row, Store } from "../../storage/store.ts";
import type { VectorTables } from "../../storage/vector-tables.ts";
import type { IndexLayout } from "./layout.ts";
import { Nearest, similarity } from "./nearest.ts";
import { readVector, type VectorRow, writeVector } from "./rows.ts";
import { createDraft, type Draft, type MessagePlace } from "./semantic.ts";
import type { IndexState } from "./state.ts";
import { createVectorCache, type VectorCache } from "./vector-cache.ts";
import type { FinishedRow, VectorIndex } from "./vector-index.ts";

// Finds the vectors that are nearest to a query: candidates from the cache, compared again by their rows in the store.

/** More candidates than hits are wanted: they show the order of similar scores only roughly. */
const candidatesFor = (limit: number): number => limit + (limit >> 2) + 16;
/** Decoding so many takes a millisecond. */
const ROWS_PER_READ = 128;
/** Counters of one read, in a search of everybody's vectors. */
const OWNERS_PER_READ = 500;

interface Search extends Pick<VectorQuery, "vector" | "limit" | "signal"> {
  /** What the keys of the rows begin with that are looked for. */
  readonly prefix: string;
  readonly nearest: Nearest<MessagePlace>;
}

interface Sources {
  readonly store: Store;
  readonly layout: IndexLayout;
  readonly cache: VectorCache;
  /** Of a store whose database compares vectors by itself. */
  readonly tables: VectorTables | undefined;
}

async function searchVectors(sources: Sources, query: VectorQuery): Promise<VectorHit[]> {
  const { vector, owner, conversation, limit, threshold, signal } = query;
  const prefix = sources.layout.vectors(owner, owner === undefined ? undefined : conversation);
  const nearest = new Nearest<MessagePlace>(limit, threshold);
  const search = { vector, limit, signal, prefix, nearest };
  if (limit > 0 && !(await searchTables(sources, search))) {
    if (owner === undefined) await searchAll(sources, search);
    else await searchOwner(sources, search, owner, conversation !== undefined);
  }
  return nearest.list().map(({ score, item }) => ({ ...item, score }));
}

/** @returns false when there are none, or they have only a part of the rows yet */
async function searchTables({ store, tables }: Sources, search: Search): Promise<boolean> {
  const { prefix, vector, limit } = search;
  const found = await tables?.nearest({ prefix, vector, limit: candidatesFor(limit) });
  if (found === undefined || found === null) return false;
  // Only rows of this owner are asked for, whatever the tables say.
  const keys = [...new Set([...found.keys, ...found.unfilled])].filter((key) => key.startsWith(prefix));
  await compare(store, keys, search);
  return true;
}

async function searchAll(sources: Sources, search: Search): Promise<void> {
  const { store, layout } = sources;
  for await (const counters of allRows(store, { prefix: layout.counters }, OWNERS_PER_READ))
    for (const counter of counters) {
      const owner = layout.vectorsOfCounter(counter.key);
      await searchVectorsOf(sources, { ...search, prefix: owner }, owner, counter);
      await nextTurn();
    }
}

async function searchOwner(sources: Sources, search: Search, owner: string, inOne: boolean): Promise<void> {
  const { store, layout, cache } = sources;
  const vectors = layout.vectors(owner);
  if (inOne && cache.peek(vectors) === undefined) {
    // A conversation that one read gives whole, of an owner whose others may be many.
    const rows = await store.scan({ prefix: search.prefix, limit: ROWS_PER_READ });
    if (rows.length < ROWS_PER_READ) return offer(rows, search);
  }
  await searchVectorsOf(sources, search, vectors, await store.get(layout.counter(owner)));
}

/** @param owner prefix of all vectors of the owner @param counter without one nothing was ever stored */
async function searchVectorsOf({ store, cache }: Sources, search: Search, owner: string, counter: Row | undefined) {
  const { prefix, vector, nearest, signal } = search;
  if (counter === undefined) return;
  signal?.throwIfAborted();
  const cached = await cache.current(store, owner, Number(counter.value));
  if (cached === null) {
    // Compared as they are read, and not kept.
    for await (const rows of allRows(store, { prefix }, ROWS_PER_READ)) {
      signal?.throwIfAborted();
      offer(rows, search);
      await nextTurn();
    }
    return;
  }
  const { matrix, changes } = cached;
  const seen = new Set<string>();
  for (let limit = candidatesFor(search.limit); ; limit *= 2) {
    const found = await matrix.nearest(vector, prefix, limit, nearest.floor);
    const unseen = found.filter((key) => !seen.has(key));
    for (const key of found) seen.add(key);
    const gone = await compare(store, unseen, search);
    // Not those that may have been written again meanwhile.
    if (cached.changes === changes) for (const key of gone) matrix.remove(key);
    if (gone.length === 0 || found.length < limit) return;
  }
}

/** Compares candidates by their rows. @returns those that have none */
async function compare(store: Store, keys: readonly string[], search: Search): Promise<string[]> {
  const gone: string[] = [];
  // The earlier of two with the same score first.
  const sorted = keys.toSorted();
  for (let start = 0; start < sorted.length; start += ROWS_PER_READ) {
    search.signal?.throwIfAborted();
    const read = sorted.slice(start, start + ROWS_PER_READ);
    const rows = await store.getMany(read);
    gone.push(...read.filter((_, index) => rows[index] === undefined));
    offer(
      rows.filter((row) => row !== undefined),
      search,
    );
  }
  return gone;
}

function offer(rows: readonly Row[], { vector: query, nearest }: Search): void {
  for (const { value } of rows) {
    const { vector, ...place } = readVector(value);
    if (vector.length === query.length) nearest.offer(similarity(query, vector, 0), place);
  }
}

interface ExactOptions {
  cache?: VectorCache;
  /** Of a store whose database compares vectors by itself. */
  tables?: VectorTables | undefined;
}

/** @param state what commits of vectors expect to be unchanged; null to write vectors without that check */
export function createExactVectors(
  store: Store,
  layout: IndexLayout,
  state: IndexState | null,
  options: ExactOptions = {},
): VectorIndex {
  const cache = options.cache ?? createVectorCache();
  const tables = options.tables;

  async function idle(): Promise<void> {
    await tables?.idle();
  }

  function dropMessages(draft: Draft, places: readonly MessagePlace[]): void {
    for (const place of places) draft.delete.push(layout.vector(place), layout.wait(place));
  }

  function dropConversation(draft: Draft, owner: string, conversation: string): void {
    draft.clear.push(layout.vectors(owner, conversation), layout.waiting(owner, conversation));
  }

  async function finish(finished: readonly FinishedRow[]): Promise<void> {
    const results = await Promise.allSettled(finished.map((one) => finishOne(one)));
    const failed = results.find((result) => result.status === "rejected");
    if (failed !== undefined) throw failed.reason;
  }

  async function finishOne({ key, revision, row }: FinishedRow): Promise<void> {
    const expect = [[key, revision] as const];
    try {
      if (row === undefined) await store.commit({ delete: [key], expect });
      else await write(row, { delete: [key], expect });
    } catch (error) {
      // Saved again or deleted in the meantime, in a commit that has put its own row into the queue or removed it.
      if (!(error instanceof CommitConflict && error.keys.includes(key))) throw error;
    }
  }

  async function write(row: VectorRow, { delete: gone = [], expect = [] }: Commit): Promise<void> {
    const owner = layout.vectors(row.owner);
    const key = layout.vector(row);
    const cached = cache.peek(owner);
    const revision = await store.commit({
      put: [[key, writeVector(row)]],
      add: [[layout.counter(row.owner), 1]],
      delete: gone,
      expect: state === null ? expect : [...expect, state.expectation],
    });
    tables?.wake();
    cache.written(owner, cached, key, revision, row.vector);
  }

  async function put(entries: readonly VectorEntry[]): Promise<void> {
    await Promise.all(entries.map((entry) => write(entry, {})));
  }

  async function remove(places: readonly { owner: string; conversation: string; message?: string }[]): Promise<void> {
    const draft = createDraft();
    for (const { owner, conversation, message } of places) {
      if (message === undefined) dropConversation(draft, owner, conversation);
      else dropMessages(draft, [{ owner, conversation, message }]);
    }
    await store.commit(draft);
  }

  async function clear(): Promise<void> {
    await store.commit({ clear: [layout.vectors()] });
    cache.forget(layout.vectors());
  }

  function search(query: VectorQuery): Promise<VectorHit[]> {
    return searchVectors({ store, layout, cache, tables }, query);
  }

  return { idle, dropMessages, dropConversation, finish, put, delete: remove, clear, search };
}
