/**
 * The interface of semantic search. Saving and deleting add rows to the caller's own commit, so that index and messages always agree.
 * The vectors follow when the texts have been embedded, if need be after a restart.
 */
import type { OpenCommit } from "../../storage/joined.ts";
import type { NamedEmbedding } from "../embedding/embedding.ts";

/** A commit under construction. The methods of `Semantic` only add to it. */
export type Draft = OpenCommit;

export const createDraft = (): Draft => ({
  put: [],
  delete: [],
  clear: [],
  add: [],
  expect: [],
  of: [],
  begun: undefined,
});

/**
 * Where a message is: its user (the owner of its conversation), its conversation and its own name. These may be any strings; searches
 * return the same ones.
 */
export interface MessagePlace {
  readonly owner: string;
  readonly conversation: string;
  readonly message: string;
}

export interface SearchedMessage extends MessagePlace {
  /** Messages without text are skipped. */
  readonly text: string;
}

interface SemanticQuery {
  readonly text: string;
  /** Undefined: everybody's messages, allowed only without isolation. */
  readonly owner?: string | undefined;
  /** Requires `owner`, which must be the owner of the conversation. */
  readonly conversation?: string | undefined;
  /** At most 1000. */
  readonly limit: number;
  /** Least cosine similarity, 0 to 1. */
  readonly threshold: number;
  readonly signal?: AbortSignal;
}

/** `score` is the cosine similarity. The message may have been deleted meanwhile, so that the caller must be ready to skip it. */
interface SemanticHit extends MessagePlace {
  readonly score: number;
}

/** The index of one named memory. */
export interface Semantic {
  readonly embedding: NamedEmbedding;
  /**
   * Adds the text of a message to the commit that stores the message; there it waits to be embedded. A message that replaces another
   * one replaces its text. A message without text is not found.
   */
  saved(draft: Draft, place: MessagePlace, text: string): void;
  /** Adds the removal of vectors to the commit that deletes their messages. */
  deleted(draft: Draft, places: readonly MessagePlace[]): void;
  /** Adds the removal of all vectors of a conversation to the commit that deletes it. */
  conversationDeleted(draft: Draft, owner: string, conversation: string): void;
  /** To be called after such a commit: starts to embed the waiting texts. Returns at once. */
  committed(): void;
  /**
   * Best hits first. Waits briefly for texts that are just being embedded, so that messages that were just saved are found.
   *
   * @throws ServiceError `unavailable` when the embedding cannot work now
   */
  search(query: SemanticQuery): Promise<SemanticHit[]>;
  /** Makes the index anew, beside searches and new messages: until the end, searches are `unavailable`. */
  rebuild(progress: (done: Reindexed) => void): Promise<Reindexed>;
}

export interface Reindexed {
  /** Messages that can be found now. */
  indexed: number;
  /** Messages whose text the model refused. */
  refused: number;
}
