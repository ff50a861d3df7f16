/** Opens the semantic indexes of a manifest's memories, and checks that they fit the configured embeddings. */

import type { Logger } from "pino";
import type { SemanticMemoryManifest } from "../../../generated/types.ts";
import { invalid, messageOf, type Problem, ServiceError, unavailable } from "../../lib/errors.ts";
import type { Manifest } from "../../manifest/manifest.ts";
import { createInstance } from "../../registry/create.ts";
import { guarded } from "../../registry/guarded.ts";
import type { Store } from "../../storage/store.ts";
import type { VectorTables } from "../../storage/vector-tables.ts";
import { EmbeddingRefused, type NamedEmbedding } from "../embedding/embedding.ts";
import { type EmbeddingSource, openEmbedding } from "../embedding/open.ts";
import {
  ALL_VECTORS,
  createExactVectors,
  createLayout,
  createPluginVectors,
  type IndexLayout,
  OBSOLETE_ROWS,
  type VectorIndex,
} from "./exact.ts";
import { normalize } from "./matrix.ts";
import { createEmbeddingQueue, type EmbeddingQueue, embedEach, MAX_TEXT_CHARACTERS } from "./queue.ts";
import { readVector, writeWaiting } from "./rows.ts";
import type { Reindexed, SearchedMessage, Semantic } from "./semantic.ts";
import { type IndexSettings, IndexState } from "./state.ts";
import { storedMessages } from "./stored-messages.ts";
import { createVectorCache, type VectorCache } from "./vector-cache.ts";

// The semantic index of one memory: saved texts wait in a queue to be embedded, searches are compared with the stored vectors.

/** How long a search waits for texts that were saved just before. */
const MAX_WAIT_MS = 2_000;
/** Rounding of 32-bit numbers: the similarity of a vector to itself may differ from 1 by this much. */
const ROUNDING_ERROR = 1e-6;
const FAILURE_MESSAGES = { embed: "the text could not be embedded", search: "the index of vectors did not answer" };

interface IndexParts {
  layout: IndexLayout;
  state: IndexState;
  embedding: NamedEmbedding;
  index: VectorIndex;
  queue: EmbeddingQueue;
  logger: Logger;
}

function createSemanticIndex(parts: IndexParts): Omit<Semantic, "rebuild"> {
  const { layout, state, embedding, index, queue, logger } = parts;

  /** Null when the vector is all zeros, and so similar to nothing. */
  async function embed(text: string, signal: AbortSignal | undefined): Promise<Float32Array | null> {
    const [vector] = await withErrors("embed", signal, () =>
      embedding.embed([text.slice(0, MAX_TEXT_CHARACTERS)], signal),
    );
    normalize(vector!);
    return vector!.some((number) => number !== 0) ? vector! : null;
  }

  /** Logs failures of the embedding or the vectors, and turns them into errors for the client. */
  async function withErrors<T>(
    step: "embed" | "search",
    signal: AbortSignal | undefined,
    work: () => Promise<T>,
  ): Promise<T> {
    try {
      return await work();
    } catch (error) {
      if (error instanceof ServiceError || signal?.aborted) throw error;
      logger.warn({ err: error }, `semantic memory: ${step} failed: ${messageOf(error)}`);
      if (error instanceof EmbeddingRefused) throw invalid("the embedding model refused the text that is searched for");
      throw unavailable(`semantic search is not available: ${FAILURE_MESSAGES[step]}`, 5);
    }
  }

  return {
    embedding,
    saved(draft, place, text) {
      const { owner, conversation, message } = place;
      if (text.trim() === "") return index.dropMessages(draft, [place]);
      const waiting = {
        kind: "embed",
        owner,
        conversation,
        message,
        text: text.slice(0, MAX_TEXT_CHARACTERS),
      } as const;
      draft.put.push([layout.wait(place), writeWaiting(waiting)]);
    },
    deleted(draft, places) {
      if (places.length > 0) index.dropMessages(draft, places);
    },
    conversationDeleted: index.dropConversation,
    committed: queue.wake,
    async search({ text, owner, conversation, limit, threshold, signal }) {
      const [vector] = await Promise.all([embed(text, signal), state.refresh()]);
      if (vector === null) return [];
      // After the query was embedded: the time that a local encoder needs to load is not part of the wait.
      await queue.waitFor(layout.waiting(owner, owner === undefined ? undefined : conversation), MAX_WAIT_MS);
      const least = threshold - ROUNDING_ERROR;
      const hits = await withErrors("search", signal, () =>
        index.search({ vector, owner, conversation, limit, threshold: least, signal }),
      );
      return hits.map(({ score, ...place }) => ({ ...place, score: Math.min(1, score) }));
    },
  };
}

interface SemanticSource extends EmbeddingSource {
  store: Store;
  /** The models have problems that are reported already, so that an unknown provider of an embedding is not reported again. */
  modelsFailed?: boolean;
  /** `server.limits.vectors`; default: 192 MiB. */
  vectorBytes?: number;
}

interface OpenedSemantics {
  /** The usable indexes, by the memory's name. */
  semantics: Map<string, Semantic>;
  /** An `error` stops the boot. */
  problems: Problem[];
  /** How many bytes of vectors are in memory. */
  vectorBytes(): number;
  /** Goes on with the texts that an earlier process left in the queue. Called once, when the service starts. */
  start(): void;
}

/** Opens the index of every memory that has `semantic`. Errors are returned as problems of the manifest. */
export async function openSemantics(
  manifest: Pick<Manifest, "memory">,
  source: SemanticSource,
): Promise<OpenedSemantics> {
  const semantics = new Map<string, Semantic>();
  const problems: Problem[] = [];
  const embeddings = createEmbeddings(source);
  const cache = createVectorCache(source.vectorBytes);
  await markGaps(manifest, source.store);
  await removeObsolete(source.store);
  for (const [name, { semantic }] of Object.entries(manifest.memory)) {
    const path = ["memory", name, "semantic"];
    if (semantic === undefined) continue;
    const opened = await openIndex(name, semantic, source, embeddings, cache).catch(
      (error): OpenedIndex => ({ problem: messageOf(error), at: "embedding" }),
    );
    if ("problem" in opened) {
      if (source.modelsFailed && isModelName(semantic.embedding, source)) continue;
      problems.push({ path: [...path, opened.at], message: opened.problem, severity: "error" });
      continue;
    }
    if (opened.gaps) {
      const message = "messages saved while this memory had no semantic search are not found: run penstock reindex";
      problems.push({ path, message, severity: "warning" });
    }
    semantics.set(name, opened.semantic);
  }
  return {
    semantics,
    problems,
    vectorBytes: () => cache.bytes,
    start() {
      for (const semantic of semantics.values()) semantic.committed();
    },
  };
}

/** Notes of the memories without semantic search that an index which they once had will lack messages. */
export async function markGaps({ memory }: Pick<Manifest, "memory">, store: Store): Promise<void> {
  for (const [name, { semantic }] of Object.entries(memory))
    if (semantic === undefined) await IndexState.markGaps(store, createLayout(name).state);
}

async function removeObsolete(store: Store): Promise<void> {
  const found = await Promise.all(OBSOLETE_ROWS.map((prefix) => store.scan({ prefix, limit: 1, longest: 0 })));
  if (found.flat().length > 0) await store.commit({ clear: OBSOLETE_ROWS });
}

const isModelName = (embedding: SemanticMemoryManifest["embedding"], { registry }: SemanticSource) =>
  typeof embedding === "string" && !embedding.startsWith("local/") && !registry.names("embedding").includes(embedding);

type OpenedIndex =
  | { semantic: Semantic; gaps: boolean }
  | { problem: string; at: "embedding" | "vectors" | "pgvector" };

async function openIndex(
  name: string,
  settings: SemanticMemoryManifest,
  source: SemanticSource,
  embeddings: Embeddings,
  cache: VectorCache,
): Promise<OpenedIndex> {
  const { store, host } = source;
  const embedding = await embeddings(settings);
  const layout = createLayout(name);
  const state = await IndexState.open(store, layout.state, indexSettings(embedding, settings));
  if ("problem" in state) return { problem: state.problem, at: "embedding" };
  let index: VectorIndex;
  try {
    index = await openVectors(name, settings, layout, state, source, cache);
  } catch (error) {
    return { problem: messageOf(error), at: error instanceof PgvectorMissing ? "pgvector" : "vectors" };
  }
  const logger = host.logger.child({ memory: name });
  const queue = createEmbeddingQueue({ store, layout, state, index, embedding, logger, signal: host.signal });
  // The store closes after this callback: let the current writes finish first.
  host.onClose(async () => {
    await queue.idle();
    await index.idle();
  });
  const rebuild: Semantic["rebuild"] = async (progress) => {
    const done = await reindex(name, settings, { ...source, embeddings }, storedMessages(store, name), progress);
    await state.refresh();
    queue.wake();
    return done;
  };
  const semantic = { ...createSemanticIndex({ layout, state, embedding, index, queue, logger }), rebuild };
  return { semantic, gaps: state.gaps };
}

type Embeddings = (settings: SemanticMemoryManifest) => Promise<NamedEmbedding>;

/** Memories with the same embedding share it. */
export function createEmbeddings(source: EmbeddingSource): Embeddings {
  const opened = new Map<string, Promise<NamedEmbedding>>();
  return ({ embedding }) => {
    const key = JSON.stringify(embedding);
    const made = opened.get(key) ?? openEmbedding(embedding, source);
    opened.set(key, made);
    return made;
  };
}

const indexSettings = (embedding: NamedEmbedding, { vectors }: SemanticMemoryManifest): IndexSettings => ({
  provider: embedding.provider,
  model: embedding.model,
  dimensions: embedding.dimensions,
  vectors: typeof vectors === "string" ? vectors : vectors.use,
});

class PgvectorMissing extends Error {}

/** What the database compares the vectors with. Undefined: this process compares them. */
async function openTables({ pgvector }: SemanticMemoryManifest, { vectors }: Store): Promise<VectorTables | undefined> {
  if (pgvector === "off") return undefined;
  const opened = await vectors?.({ prefix: ALL_VECTORS, decode: (value) => readVector(value).vector });
  if (opened !== undefined && !("problem" in opened)) return opened;
  if (pgvector !== "required") return undefined;
  if (opened === undefined) throw new PgvectorMissing("cannot be required: the store is not PostgreSQL");
  throw new PgvectorMissing(`cannot be required of this database: ${opened.problem}`);
}

/** @throws Error with a message for the author of the manifest */
async function openVectors(
  name: string,
  settings: SemanticMemoryManifest,
  layout: IndexLayout,
  state: IndexState,
  { store, registry, host }: SemanticSource,
  cache: VectorCache,
): Promise<VectorIndex> {
  const { use, ...config } = typeof settings.vectors === "string" ? { use: settings.vectors } : settings.vectors;
  const plugin = registry.get("vectors", use);
  const { env, signal, onClose, keyv } = host;
  const logger = host.logger.child({ memory: name });
  if (plugin === undefined) {
    if (use !== "exact") throw new Error(`no vectors plugin "${use}"`);
    const tables = await openTables(settings, store);
    return createExactVectors(store, layout, state, { cache, tables });
  }
  if (settings.pgvector === "required")
    throw new PgvectorMissing(`cannot be required of the plugin ${use}, but of exact alone`);
  const vectors = await createInstance(plugin, config, { name, logger, env, signal, onClose, keyv });
  return createPluginVectors(store, layout, state, guarded(vectors, ["put", "delete", "search", "clear"]));
}

// Rebuilds an index from the messages: after a change of the embedding, or when messages are missing from it.

/** Texts that are embedded and stored together. */
const BATCH_TEXTS = 64;
const VECTORS_PER_REMOVAL = 1_000;

/**
 * Rebuilds the index of one memory. Until the end the index is marked as incomplete, so that the next boot reports an interrupted
 * run. The next run begins from the start.
 *
 * @param messages all messages of the memory
 * @param progress called after each batch
 * @throws Error when the embedding, the vectors or the store fail
 */
export async function reindex(
  name: string,
  settings: SemanticMemoryManifest,
  source: SemanticSource & { embeddings: Embeddings },
  messages: AsyncIterable<SearchedMessage>,
  progress: (done: Reindexed) => void,
): Promise<Reindexed> {
  const { store, host } = source;
  const embedding = await source.embeddings(settings);
  const layout = createLayout(name);
  const state = await IndexState.begin(store, layout.state, indexSettings(embedding, settings));
  await removeVectors(store, layout.vectors());
  const index = await openVectors(name, settings, layout, state, source, createVectorCache());
  await index.clear();
  const done: Reindexed = { indexed: 0, refused: 0 };
  for await (const batch of batches(messages)) {
    for await (const embedded of embedEach(embedding, batch, host.signal)) {
      const found = embedded.filter((entry) => "vector" in entry);
      if (found.length > 0) {
        await state.setDimensions(found[0]!.vector.length);
        await index.put(found);
      }
      done.indexed += found.length;
      done.refused += embedded.length - found.length;
    }
    progress(done);
  }
  // Rows that an earlier process left in the queue: messages that are indexed by now, and deletions for a plugin.
  const logger = host.logger.child({ memory: name });
  await createEmbeddingQueue({ store, layout, state, index, embedding, logger, signal: host.signal }).drain();
  await index.idle();
  await state.finish();
  return done;
}

/** In slices, while nobody uses the index: where the database compares vectors, each takes some time with it. */
async function removeVectors(store: Store, prefix: string): Promise<void> {
  for (;;) {
    const rows = await store.scan({ prefix, limit: VECTORS_PER_REMOVAL, longest: 1 });
    if (rows.length === 0) return;
    await store.commit({ delete: rows.map(({ key }) => key) });
  }
}

async function* batches(messages: AsyncIterable<SearchedMessage>): AsyncGenerator<SearchedMessage[]> {
  let batch: SearchedMessage[] = [];
  for await (const message of messages) {
    if (message.text.trim() === "") continue;
    batch.push(message);
    if (batch.length < BATCH_TEXTS) continue;
    yield batch;
    batch = [];
  }
  if (batch.length > 0) yield batch;
}
