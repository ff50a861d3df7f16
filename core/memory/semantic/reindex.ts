/** Rebuilds an index from the messages: after a change of the embedding, or when messages are missing from it. */
import type { SemanticMemoryManifest } from "../../../generated/types.ts";
import type { Store } from "../../storage/store.ts";
import type { NamedEmbedding } from "../embedding/embedding.ts";
import { EmbeddingRefused } from "../embedding/embedding.ts";
import { MAX_TEXT_CHARACTERS } from "./index.ts";
import { createLayout } from "./layout.ts";
import { normalize } from "./nearest.ts";
import { type Embeddings, indexSettings, openVectors, type SemanticSource } from "./open.ts";
import { createEmbeddingQueue } from "./queue.ts";
import type { VectorRow } from "./rows.ts";
import type { MessagePlace } from "./semantic.ts";
import { IndexState } from "./state.ts";
import { createVectorCache } from "./vector-cache.ts";

/** Texts that are embedded and stored together. */
const BATCH_TEXTS = 64;
const VECTORS_PER_REMOVAL = 1_000;

export interface SearchedMessage extends MessagePlace {
  /** Messages without text are skipped. */
  readonly text: string;
}

export interface Reindexed {
  /** Messages that can be found now. */
  indexed: number;
  /** Messages whose text the model refused. */
  refused: number;
}

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
    const embedded = await embedEach(embedding, batch, host.signal);
    const found = embedded.filter((entry) => entry !== null);
    if (found.length > 0) {
      await state.setDimensions(found[0]!.vector.length);
      await index.put(found);
    }
    done.indexed += found.length;
    done.refused += batch.length - found.length;
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

/** Null for texts that the model refuses. */
async function embedEach(
  embedding: NamedEmbedding,
  batch: readonly SearchedMessage[],
  signal: AbortSignal,
): Promise<(VectorRow | null)[]> {
  try {
    const vectors = await embedding.embed(
      batch.map(({ text }) => text.slice(0, MAX_TEXT_CHARACTERS)),
      signal,
    );
    return batch.map(({ owner, conversation, message }, position) => {
      return { owner, conversation, message, vector: normalize(vectors[position]!) };
    });
  } catch (error) {
    if (!(error instanceof EmbeddingRefused)) throw error;
    if (batch.length === 1) return [null];
    const middle = batch.length >> 1;
    const first = await embedEach(embedding, batch.slice(0, middle), signal);
    return [...first, ...(await embedEach(embedding, batch.slice(middle), signal))];
  }
}
