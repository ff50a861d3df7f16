/**
 * `exact`: vectors in the store beside the messages. Each is a row of its own, which a commit writes or deletes together with the message.
 * A search compares all vectors of an owner in memory, and the best of them again by their rows. So nothing is found whose row is gone,
 * whatever is in memory. Where the database of the store compares vectors by itself, it names the candidates.
 */
import { CommitConflict } from "../../lib/errors.ts";
import { nextTurn } from "../../lib/event-loop-turns.ts";
import type { VectorHit, VectorQuery, Vectors } from "../../plugin/plugin.ts";
import { encodeShortText as part } from "../../storage/keys.ts";
import { allRows } from "../../storage/ranges.ts";
import { type Commit, type Row, removeUnchanged, type Store } from "../../storage/store.ts";
import type { VectorTables } from "../../storage/vector-tables.ts";
import { Nearest, similarity } from "./matrix.ts";
import { readVector, type VectorRow, writeVector, writeWaiting } from "./rows.ts";
import { createDraft, type Draft, type MessagePlace } from "./semantic.ts";
import type { IndexState } from "./state.ts";
import { createVectorCache, type VectorCache } from "./vector-cache.ts";

// The keys of an index's rows: vectors, texts that wait to be embedded, change counters, and the state.

const ROOT = "semantic";

/** What the keys of the vectors of all memories begin with. */
export const ALL_VECTORS = `${ROOT}/vectors/`;
/** What an earlier version kept beside the vectors: copies as bytes, and what was deleted since they were made. */
export const OBSOLETE_ROWS = [`${ROOT}/packs/`, `${ROOT}/deletions/`];

export interface IndexLayout {
  /** Provider, model and dimensions of the vectors. */
  readonly state: string;
  /** Prefix of all vectors, of those of one owner, or of those of one conversation. */
  vectors(owner?: string, conversation?: string): string;
  vector(place: MessagePlace): string;
  /** Prefix of the counters of all owners who ever had a vector. */
  readonly counters: string;
  /** A counter that rises with every vector of the owner that is written, so that caches notice that they are out of date. */
  counter(owner: string): string;
  /** Prefix of the vectors of the owner with this counter. */
  vectorsOfCounter(key: string): string;
  /** Prefix of all waiting rows, of those of one owner, or of those of one conversation. */
  waiting(owner?: string, conversation?: string): string;
  wait(place: MessagePlace): string;
  /** A conversation whose vectors a plugin has yet to delete; sorts before the other waiting rows of the conversation. */
  waitingConversation(owner: string, conversation: string): string;
}

export function createLayout(memory: string): IndexLayout {
  const name = part(memory);
  const below = (kind: string) => (owner?: string, conversation?: string) => {
    const ofAll = `${ROOT}/${kind}/${name}/`;
    if (owner === undefined) return ofAll;
    return conversation === undefined ? `${ofAll}${part(owner)}/` : `${ofAll}${part(owner)}/${part(conversation)}/`;
  };
  const vectors = below("vectors");
  const waiting = below("waiting");
  const counters = below("changes")();
  return {
    state: `${ROOT}/state/${name}`,
    vectors,
    vector: ({ owner, conversation, message }) => `${vectors(owner, conversation)}${part(message)}`,
    counters,
    counter: (owner) => counters + part(owner),
    vectorsOfCounter: (key) => `${vectors()}${key.slice(counters.length)}/`,
    waiting,
    wait: ({ owner, conversation, message }) => `${waiting(owner, conversation)}${part(message)}`,
    waitingConversation: (owner, conversation) => waiting(owner, conversation).slice(0, -1),
  };
}

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

  const dropConversation: VectorIndex["dropConversation"] = (draft, owner, conversation) => {
    draft.clear.push(layout.vectors(owner, conversation), layout.waiting(owner, conversation));
  };

  const dropMessages: VectorIndex["dropMessages"] = (draft, places) => {
    for (const place of places) draft.delete.push(layout.vector(place), layout.wait(place));
  };

  return {
    dropMessages,
    dropConversation,
    async finish(finished) {
      const results = await Promise.allSettled(finished.map(finishOne));
      const failed = results.find((result) => result.status === "rejected");
      if (failed !== undefined) throw failed.reason;
    },
    async put(entries) {
      await Promise.all(entries.map((entry) => write(entry, {})));
    },
    async delete(places) {
      const draft = createDraft();
      for (const { owner, conversation, message } of places) {
        if (message === undefined) dropConversation(draft, owner, conversation);
        else dropMessages(draft, [{ owner, conversation, message }]);
      }
      await store.commit(draft);
    },
    async clear() {
      await store.commit({ clear: [layout.vectors()] });
      cache.forget(layout.vectors());
    },
    search: (query) => searchVectors({ store, layout, cache, tables }, query),
    idle: async () => tables?.idle(),
  };
}

/*
 * Vectors that a plugin keeps outside of the store. No commit can change them, so that deletions wait in the store like texts that wait
 * to be embedded, and are retried until the plugin has done them.
 */

export function createPluginVectors(
  store: Store,
  layout: IndexLayout,
  state: IndexState,
  vectors: Vectors,
): VectorIndex {
  return {
    dropMessages(draft, places) {
      for (const { owner, conversation, message } of places) {
        const place = { owner, conversation, message };
        draft.put.push([layout.wait(place), writeWaiting({ kind: "delete", ...place })]);
      }
    },
    dropConversation(draft, owner, conversation) {
      draft.clear.push(layout.waiting(owner, conversation));
      const row = writeWaiting({ kind: "deleteConversation", owner, conversation });
      draft.put.push([layout.waitingConversation(owner, conversation), row]);
    },
    /** Calls the plugin before the commit: after a crash in between it gets the same call again. */
    async finish(finished) {
      // Another process may have rebuilt the index.
      await state.refresh();
      const entries = finished.flatMap(({ row }) => (row === undefined ? [] : [row]));
      if (entries.length > 0) await vectors.put(entries);
      await Promise.all(finished.map((one) => removeUnchanged(store, one)));
    },
    put: async (entries) => vectors.put(entries),
    delete: async (places) => vectors.delete(places),
    clear: async () => vectors.clear(),
    async search(query) {
      const { owner, conversation, limit, threshold } = query;
      const hits = await vectors.search(query);
      // The plugin is not trusted to keep owners apart.
      return hits
        .filter((hit) => owner === undefined || hit.owner === owner)
        .filter((hit) => conversation === undefined || hit.conversation === conversation)
        .filter(({ score }) => score >= threshold)
        .sort((a, b) => b.score - a.score)
        .slice(0, limit);
    },
    idle: async () => {},
  };
}

// The interface of a place for vectors: the store, or a plugin.

/** A row of the queue that is done: a text that has its vector, or a deletion. */
export interface FinishedRow {
  /** The key of the waiting row, which is deleted unless it has changed. */
  readonly key: string;
  readonly revision: number;
  /** Undefined for a deletion, and for a text that nothing is similar to. */
  readonly row?: VectorRow | undefined;
}

export interface VectorIndex {
  /** Adds to a commit the removal of the messages' vectors and waiting texts. */
  dropMessages(draft: Draft, places: readonly MessagePlace[]): void;
  /** Adds to a commit the removal of everything of a conversation. */
  dropConversation(draft: Draft, owner: string, conversation: string): void;
  /** Stores vectors and deletes their waiting rows. A row that has changed meanwhile stays in the queue. */
  finish(finished: readonly FinishedRow[]): Promise<void>;
  /** Stores vectors that have no waiting row. */
  put: Vectors["put"];
  /** Deletes messages, or whole conversations, in a commit of its own. */
  delete: Vectors["delete"];
  clear: Vectors["clear"];
  search(query: VectorQuery): ReturnType<Vectors["search"]>;
  /** Resolves when nothing is done in the background. */
  idle(): Promise<void>;
}
