/** The semantic index of one memory: saved texts wait in a queue to be embedded, searches are compared with the stored vectors. */
import type { Logger } from "pino";
import { invalid, messageOf, ServiceError, unavailable } from "../../lib/errors.ts";
import { EmbeddingRefused, type NamedEmbedding } from "../embedding/embedding.ts";
import type { IndexLayout } from "./layout.ts";
import { normalize } from "./nearest.ts";
import type { EmbeddingQueue } from "./queue.ts";
import { writeWaiting } from "./rows.ts";
import type { Draft, MessagePlace, Semantic, SemanticHit, SemanticQuery } from "./semantic.ts";
import type { IndexState } from "./state.ts";
import type { VectorIndex } from "./vector-index.ts";

/** Only this much of a message, and of a query, is embedded. */
export const MAX_TEXT_CHARACTERS = 8_000;
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

export function createSemanticIndex(parts: IndexParts): Semantic {
  function saved(draft: Draft, place: MessagePlace, text: string): void {
    const { index, layout } = parts;
    const { owner, conversation, message } = place;
    if (text.trim() === "") {
      index.dropMessages(draft, [place]);
      return;
    }
    const row = writeWaiting({ kind: "embed", owner, conversation, message, text: text.slice(0, MAX_TEXT_CHARACTERS) });
    draft.put.push([layout.wait(place), row]);
  }

  function deleted(draft: Draft, places: readonly MessagePlace[]): void {
    if (places.length > 0) parts.index.dropMessages(draft, places);
  }

  function conversationDeleted(draft: Draft, owner: string, conversation: string): void {
    parts.index.dropConversation(draft, owner, conversation);
  }

  function committed(): void {
    parts.queue.wake();
  }

  async function search(query: SemanticQuery): Promise<SemanticHit[]> {
    const { queue, layout, state, index } = parts;
    const { owner, conversation, limit, threshold, signal } = query;
    const [vector] = await Promise.all([embed(query.text, signal), state.refresh()]);
    if (vector === null) return [];
    // After the query was embedded: the time that a local encoder needs to load is not part of the wait.
    await queue.waitFor(layout.waiting(owner, owner === undefined ? undefined : conversation), MAX_WAIT_MS);
    const least = threshold - ROUNDING_ERROR;
    const hits = await withErrors("search", signal, () =>
      index.search({ vector, owner, conversation, limit, threshold: least, signal }),
    );
    return hits.map(({ score, ...place }) => ({ ...place, score: Math.min(1, score) }));
  }

  /** Null when the vector is all zeros, and so similar to nothing. */
  async function embed(text: string, signal: AbortSignal | undefined): Promise<Float32Array | null> {
    const { embedding } = parts;
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
      parts.logger.warn({ err: error }, `semantic memory: ${step} failed: ${messageOf(error)}`);
      if (error instanceof EmbeddingRefused) throw invalid("the embedding model refused the text that is searched for");
      throw unavailable(`semantic search is not available: ${FAILURE_MESSAGES[step]}`, 5);
    }
  }

  return { embedding: parts.embedding, saved, deleted, conversationDeleted, committed, search };
}
