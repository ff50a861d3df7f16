/** What semantic search needs of an embedding, whether it is built in, a model of a provider, or a plugin. */

/** What makes the vectors of an index. */
export interface NamedEmbedding {
  /** `local`, the key of a provider, or `plugin NAME`. */
  readonly provider: string;
  readonly model: string;
  /** Null for providers that show it only with the first vector. */
  readonly dimensions: number | null;
  /**
   * One vector for each text, in order, of any length but zero.
   *
   * @throws EmbeddingRefused when it will never embed one of these texts; any other error may be temporary
   */
  embed(texts: readonly string[], signal?: AbortSignal): Promise<Float32Array[]>;
}

/** The embedding refused the text, so that trying again will not help. */
export class EmbeddingRefused extends Error {
  override readonly name = "EmbeddingRefused";
}
