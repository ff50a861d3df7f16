/** The interface of a place for vectors: the store, or a plugin. */
import type { VectorQuery, Vectors } from "../../plugin/plugin.ts";
import type { VectorRow } from "./rows.ts";
import type { Draft, MessagePlace } from "./semantic.ts";

/** A row of the queue that is done: a text that has its vector, or a deletion. */
export interface FinishedRow {
  /** The key of the waiting row, which is deleted unless it has changed. */
  readonly key: string;
  readonly revision: number;
  /** Undefined for a deletion, and for a text that nothing is similar to. */
  readonly row?: VectorRow | undefined;
}

export interface VectorIndex {
  /** Adds to a commit the removal of the messages' vectors and waiting texts. */
  dropMessages(draft: Draft, places: readonly MessagePlace[]): void;
  /** Adds to a commit the removal of everything of a conversation. */
  dropConversation(draft: Draft, owner: string, conversation: string): void;
  /** Stores vectors and deletes their waiting rows. A row that has changed meanwhile stays in the queue. */
  finish(finished: readonly FinishedRow[]): Promise<void>;
  /** Stores vectors that have no waiting row. */
  put: Vectors["put"];
  /** Deletes messages, or whole conversations, in a commit of its own. */
  delete: Vectors["delete"];
  clear: Vectors["clear"];
  search(query: VectorQuery): ReturnType<Vectors["search"]>;
  /** Resolves when nothing is done in the background. */
  idle(): Promise<void>;
}
