/**
 * Semantic search as the memory domain sees it. What is saved or deleted contributes rows to the caller's own commit, so
 * that the index and the messages never tell different stories; vectors follow as soon as the texts are embedded, after a
 * crash too.
 */
import type { Commit } from "../../storage/store.ts";

/** A commit under construction. Calls here only add to it. */
export type Draft = { [K in keyof Commit]-?: Mutable<NonNullable<Commit[K]>> };
type Mutable<T> = T extends readonly (infer I)[] ? I[] : never;

export const createDraft = (): Draft => ({ put: [], delete: [], clear: [], add: [], expect: [] });

/**
 * Where a message is: the user it belongs to (the owner of its conversation), its conversation and its own id. Any
 * strings; what is found comes back with the same ones.
 */
export interface MessagePlace {
  readonly owner: string;
  readonly conversation: string;
  readonly message: string;
}

export interface SemanticQuery {
  readonly text: string;
  /** Undefined: of everybody, only where nothing is isolated. */
  readonly owner?: string | undefined;
  /** With `owner`, which is that of the conversation. */
  readonly conversation?: string | undefined;
  /** At most 1000. */
  readonly limit: number;
  /** Least cosine similarity, 0 to 1. */
  readonly threshold: number;
  readonly signal?: AbortSignal;
}

/** Cosine similarity in `score`. The message may be gone by now: who reads it passes over it then. */
export interface SemanticHit extends MessagePlace {
  readonly score: number;
}

/** The index of one named memory. */
export interface Semantic {
  /**
   * Adds to the commit that stores a message what has it found: its `textOf`, which waits there to be embedded. A message
   * that replaces another replaces its text; one without text is not found.
   */
  saved(draft: Draft, place: MessagePlace, text: string): void;
  /** Adds to the commit that deletes messages the end of their vectors. */
  deleted(draft: Draft, places: readonly MessagePlace[]): void;
  /** Adds to the commit that deletes a conversation the end of all its vectors. */
  conversationDeleted(draft: Draft, owner: string, conversation: string): void;
  /** After such a commit: has the waiting texts embedded. Returns at once. */
  committed(): void;
  /**
   * Best first. Waits a moment for texts that are just being embedded, so that what was saved is found.
   *
   * @throws ServiceError `unavailable` when the embedding cannot work now
   */
  search(query: SemanticQuery): Promise<SemanticHit[]>;
}
