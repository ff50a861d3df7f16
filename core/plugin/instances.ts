/** What `create` of a plugin returns, for each kind of plugin; a store plugin returns a `Store`. */
import type { EmbeddingModelV3, LanguageModelV3 } from "@ai-sdk/provider";
import type { User } from "../identity/principal.ts";

export interface AuthProvider {
  type: string;
  /** Route patterns that need no token, in addition to those of the manifest. */
  publicRoutes?: string[];
  /**
   * The user of a token; null, undefined or an exception reject the token. `exp` of a user, in seconds since 1970 as in a JWT, is when
   * the token expires: sockets and streams that it opened are closed then. Without it they stay open.
   */
  verifyToken(
    token: string,
    request: { method: string; path: string; headers: Record<string, string>; query: Record<string, string> },
  ): Promise<User | null | undefined>;
}

/** The manifest's settings for a model and its provider. Times are in milliseconds. */
export interface ModelSettings {
  readonly timeouts: ModelTimeouts;
  /** Whether text in `<think>` tags is treated as reasoning. */
  readonly extractReasoning: boolean;
  readonly structuredOutput: "auto" | "json_schema" | "json_object" | "prompt";
  /** Parameters by their names in the provider's API. */
  readonly parameters: { readonly omit: readonly string[]; readonly rename: Readonly<Record<string, string>> };
  /** Most tokens of prompt and answer together. */
  readonly contextWindow: number | undefined;
  readonly prices: ModelPrices | undefined;
}

export interface ModelTimeouts {
  /** Until a connection is established, not counting the wait for a free one. */
  readonly connect: number;
  /** From the established connection to the first byte of the answer. */
  readonly firstByte: number;
  /** Between two chunks of the answer. */
  readonly idle: number;
  /** From the first byte to the end; undefined for no limit. */
  readonly total?: number;
}

/** USD per million tokens. */
export interface ModelPrices {
  readonly input: number;
  readonly output: number;
  readonly cachedInput?: number;
  /** The date on which they were looked up. */
  readonly asOf?: string;
}

export interface ModelProvider {
  languageModel(id: string, settings: ModelSettings): LanguageModelV3;
  embeddingModel?(id: string, settings: ModelSettings): EmbeddingModelV3;
  /** Number of tries after the first, before the first visible byte; default 2. */
  retries?: number;
}

export interface Embedding {
  /** Length of every vector. */
  dimensions: number;
  /** The model of the vectors: an index that was made with another model, or another length, has to be rebuilt. */
  model?: string;
  /** Returns one vector for each text, in the same order. */
  embed(texts: string[], options: { signal?: AbortSignal }): Promise<Float32Array[]>;
}

/** The message to which a vector belongs. Arbitrary strings of at most 256 characters; a message id is unique in its conversation. */
export interface VectorPlace {
  owner: string;
  conversation: string;
  message: string;
}

export interface VectorEntry extends VectorPlace {
  /** Has length 1, so that the dot product of two vectors is their cosine similarity. All have the same number of dimensions. */
  vector: Float32Array;
}

export interface VectorQuery {
  /** Has length 1. */
  vector: Float32Array;
  /** Only vectors of this owner may be found; undefined for all owners. */
  owner?: string;
  conversation?: string;
  limit: number;
  /** Lowest cosine similarity of a hit. */
  threshold: number;
  signal?: AbortSignal;
}

export interface VectorHit extends VectorPlace {
  /** Cosine similarity, -1 to 1. */
  score: number;
}

/**
 * An index of vectors, for one named memory (`host.name`). Once a change has resolved, the next `search` must see it.
 * A call that rejects is repeated later with the same arguments, so every method must be idempotent.
 */
export interface Vectors {
  /** Adds vectors, or replaces those of the same messages. */
  put(entries: readonly VectorEntry[]): Promise<void>;
  /** Deletes messages, or all of a conversation if `message` is undefined. It is not an error when there is nothing to delete. */
  delete(places: readonly { owner: string; conversation: string; message?: string }[]): Promise<void>;
  /** Returns the best hits first. */
  search(query: VectorQuery): Promise<VectorHit[]>;
  /** Deletes everything of this memory. */
  clear(): Promise<void>;
}
