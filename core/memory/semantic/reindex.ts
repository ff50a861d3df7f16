/** An index made anew from the messages: after another embedding was chosen, or when messages are missing from it. */
import type { SemanticMemoryManifest } from "../../../generated/types.ts";
import type { NamedEmbedding } from "../embedding/embedding.ts";
import { EmbeddingRefused } from "../embedding/embedding.ts";
import { MAX_TEXT_CHARACTERS } from "./index.ts";
import { createLayout } from "./layout.ts";
import { normalize } from "./nearest.ts";
import { type Embeddings, indexSettings, openVectors, type SemanticSource } from "./open.ts";
import { EmbeddingQueue } from "./queue.ts";
import type { VectorRow } from "./rows.ts";
import type { MessagePlace } from "./semantic.ts";
import { IndexState } from "./state.ts";

/** Texts embedded, and vectors stored, at once. */
const BATCH = 64;

export interface SearchedMessage extends MessagePlace {
  /** Empty: it has none, and is passed over. */
  readonly text: string;
}

export interface Reindexed {
  /** Messages that can be found now. */
  indexed: number;
  /** Messages whose text the model refused. */
  refused: number;
}

/**
 * Makes the index of one memory anew. Until it is done the index says that it is not complete, so that an interrupted run is
 * noticed at boot; the next one begins again.
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
  const state = await IndexState.begin(store, layout.state, indexSettings(embedding, settings), [layout.vectors()]);
  const index = await openVectors(name, settings, layout, state, source);
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
  // What an earlier process left waiting: of messages that are indexed by now, and deletions that a plugin must still do.
  const logger = host.logger.child({ memory: name });
  await new EmbeddingQueue({ store, layout, state, index, embedding, logger, signal: host.signal }).drain();
  await state.finish();
  return done;
}

async function* batches(messages: AsyncIterable<SearchedMessage>): AsyncGenerator<SearchedMessage[]> {
  let batch: SearchedMessage[] = [];
  for await (const message of messages) {
    if (message.text.trim() === "") continue;
    batch.push(message);
    if (batch.length < BATCH) continue;
    yield batch;
    batch = [];
  }
  if (batch.length > 0) yield batch;
}

/** Null for what the model refuses. */
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
