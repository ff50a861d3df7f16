/** The index of one memory: what is saved joins a queue, what is searched is compared with the vectors there are. */
import type { Logger } from "pino";
import { invalid, messageOf, ServiceError, unavailable } from "../../lib/errors.ts";
import { EmbeddingRefused, type NamedEmbedding } from "../embedding/embedding.ts";
import type { Layout } from "./layout.ts";
import { normalize } from "./nearest.ts";
import type { EmbeddingQueue } from "./queue.ts";
import { writeWaiting } from "./rows.ts";
import type { Draft, MessagePlace, Semantic, SemanticHit, SemanticQuery } from "./semantic.ts";
import type { IndexState } from "./state.ts";
import type { VectorIndex } from "./vector-index.ts";

/** Characters of a message, and of a query, that count. */
export const MAX_TEXT_CHARACTERS = 8_000;
/** Milliseconds that a search waits for what was saved just before. */
const PATIENCE = 2_000;
/** The similarity of a vector of 32-bit numbers to itself is 1, give or take this. */
const ROUNDING = 1e-6;
const FAILURES = { embed: "the text could not be embedded", search: "the index of vectors did not answer" };

interface IndexParts {
  layout: Layout;
  state: IndexState;
  embedding: NamedEmbedding;
  index: VectorIndex;
  queue: EmbeddingQueue;
  logger: Logger;
}

export class SemanticIndex implements Semantic {
  readonly #parts: IndexParts;

  constructor(parts: IndexParts) {
    this.#parts = parts;
  }

  saved(draft: Draft, place: MessagePlace, text: string): void {
    const { index, layout } = this.#parts;
    const { owner, conversation, message } = place;
    if (text.trim() === "") {
      index.dropMessages(draft, [place]);
      return;
    }
    const row = writeWaiting({ kind: "embed", owner, conversation, message, text: text.slice(0, MAX_TEXT_CHARACTERS) });
    draft.put.push([layout.wait(place), row]);
  }

  deleted(draft: Draft, places: readonly MessagePlace[]): void {
    if (places.length > 0) this.#parts.index.dropMessages(draft, places);
  }

  conversationDeleted(draft: Draft, owner: string, conversation: string): void {
    this.#parts.index.dropConversation(draft, owner, conversation);
  }

  committed(): void {
    this.#parts.queue.wake();
  }

  async search(query: SemanticQuery): Promise<SemanticHit[]> {
    const { queue, layout, state, index } = this.#parts;
    const { owner, conversation, limit, threshold, signal } = query;
    const [vector] = await Promise.all([this.#embed(query.text, signal), state.refresh()]);
    if (vector === null) return [];
    // Not at once: where the encoder had to load for the query, it was not for the texts to blame.
    await queue.waitFor(layout.waiting(owner, owner === undefined ? undefined : conversation), PATIENCE);
    const least = threshold - ROUNDING;
    const hits = await this.#guard("search", signal, () =>
      index.search({ vector, owner, conversation, limit, threshold: least, signal }),
    );
    return hits.map(({ score, ...place }) => ({ ...place, score: Math.min(1, score) }));
  }

  /** Null for a text that is similar to nothing. */
  async #embed(text: string, signal: AbortSignal | undefined): Promise<Float32Array | null> {
    const { embedding } = this.#parts;
    const [vector] = await this.#guard("embed", signal, () =>
      embedding.embed([text.slice(0, MAX_TEXT_CHARACTERS)], signal),
    );
    normalize(vector!);
    return vector!.some((number) => number !== 0) ? vector! : null;
  }

  /** What goes wrong outside is told to the log; the client hears that it is not its fault. */
  async #guard<T>(step: "embed" | "search", signal: AbortSignal | undefined, work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (error) {
      if (error instanceof ServiceError || signal?.aborted) throw error;
      this.#parts.logger.warn({ err: error }, `semantic memory: ${step} failed: ${messageOf(error)}`);
      if (error instanceof EmbeddingRefused) throw invalid("the embedding model refused the text that is searched for");
      throw unavailable(`semantic search is not available: ${FAILURES[step]}`, 5);
    }
  }
}
