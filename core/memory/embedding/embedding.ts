/** The interface of an embedding for semantic search, whether it is built in, a model of a provider, or a plugin. */

/** An embedding, and the names under which an index records it. */
export interface NamedEmbedding {
  /** `local`, the key of a provider, or `plugin NAME`. */
  readonly provider: string;
  readonly model: string;
  /** Null for providers that reveal it only with the first vector. */
  readonly dimensions: number | null;
  /**
   * Returns one vector for each text, in the same order, with any length but zero.
   *
   * @throws EmbeddingRefused when it will never embed one of these texts; any other error may be temporary
   */
  embed(texts: readonly string[], signal?: AbortSignal): Promise<Float32Array[]>;
}

/** The embedding refused the text, so a retry is pointless. */
export class EmbeddingRefused extends Error {
  override readonly name = "EmbeddingRefused";
}
