/** What `create` of a plugin makes, by its kind; that of a store is `Store`. */
import type { EmbeddingModelV3, LanguageModelV3 } from "@ai-sdk/provider";
import type { User } from "../identity/user.ts";

export interface AuthProvider {
  type: string;
  /** Route patterns that need no token beside those of the manifest. */
  publicRoutes?: string[];
  /**
   * The user of a token; null, undefined or a throw refuse it. A user with `exp`, seconds since 1970 as in a JWT, says when the
   * token ends: sockets and streams that it opened end then. Without it they last.
   */
  verifyToken(
    token: string,
    request: { method: string; path: string; headers: Record<string, string>; query: Record<string, string> },
  ): Promise<User | null | undefined>;
}

/** What the manifest says of a model and of its provider. Times are in milliseconds. */
export interface ModelSettings {
  readonly timeouts: ModelTimeouts;
  /** Whether text in `<think>` tags is taken for reasoning. */
  readonly extractReasoning: boolean;
  readonly structuredOutput: "auto" | "json_schema" | "json_object" | "prompt";
  /** By the names of the provider's API. */
  readonly parameters: { readonly omit: readonly string[]; readonly rename: Readonly<Record<string, string>> };
  /** Tokens of prompt and answer together. */
  readonly contextWindow: number | undefined;
  readonly prices: ModelPrices | undefined;
}

export interface ModelTimeouts {
  /** Until there is a connection; the wait for a free one does not count. */
  readonly connect: number;
  /** From then on until the first byte of the answer. */
  readonly firstByte: number;
  /** Between two pieces of the answer. */
  readonly idle: number;
  /** From the first byte to the end; no limit when it is left out. */
  readonly total?: number;
}

/** USD per million tokens. */
export interface ModelPrices {
  readonly input: number;
  readonly output: number;
  readonly cachedInput?: number;
  /** The day that they were looked up. */
  readonly asOf?: string;
}

export interface ModelProvider {
  languageModel(id: string, settings: ModelSettings): LanguageModelV3;
  embeddingModel?(id: string, settings: ModelSettings): EmbeddingModelV3;
  /** Tries after the first, before the first visible byte; default 2. */
  retries?: number;
}

export interface Embedding {
  /** Length of every vector. */
  dimensions: number;
  /** The model of the vectors: an index that was made with another model, or another length, has to be rebuilt. */
  model?: string;
  /** One vector for each text, in order. */
  embed(texts: string[], options: { signal?: AbortSignal }): Promise<Float32Array[]>;
}

/** The message that a vector belongs to. Any strings, at most 256 characters each; a message id is unique in its conversation. */
export interface VectorPlace {
  owner: string;
  conversation: string;
  message: string;
}

export interface VectorEntry extends VectorPlace {
  /** Of length 1, so that the dot product of two is their cosine similarity. All have the same number of dimensions. */
  vector: Float32Array;
}

export interface VectorQuery {
  /** Of length 1. */
  vector: Float32Array;
  /** Only vectors of this owner may be found; undefined: those of all owners. */
  owner?: string;
  conversation?: string;
  limit: number;
  /** Least cosine similarity. */
  threshold: number;
  signal?: AbortSignal;
}

export interface VectorHit extends VectorPlace {
  /** Cosine similarity, -1 to 1. */
  score: number;
}

/**
 * An index of vectors, for one named memory (`host.name`). The next `search` sees every change that has resolved.
 * A call that rejects is made again later with the same arguments, so that every method must tolerate repetition.
 */
export interface Vectors {
  /** Adds vectors, or replaces those of the same messages. */
  put(entries: readonly VectorEntry[]): Promise<void>;
  /** Deletes messages, or all of a conversation where `message` is undefined. It is not an error when there is nothing to delete. */
  delete(places: readonly { owner: string; conversation: string; message?: string }[]): Promise<void>;
  /** Best first. */
  search(query: VectorQuery): Promise<VectorHit[]>;
  /** Deletes everything of this memory. */
  clear(): Promise<void>;
}
