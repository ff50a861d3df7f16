/** Where the vectors of a memory are: in the store, or with a plugin. */
import type { VectorQuery, Vectors } from "../../plugin/plugin.ts";
import type { VectorRow } from "./rows.ts";
import type { Draft, MessagePlace } from "./semantic.ts";

/** Something that waited and is done: a text that has its vector, or what a plugin had to delete. */
export interface FinishedRow {
  /** Its row, which goes unless it has changed. */
  readonly key: string;
  readonly revision: number;
  /** Undefined: a deletion, or a text that nothing is similar to. */
  readonly row?: VectorRow | undefined;
}

export interface VectorIndex {
  /** For a commit that deletes messages. Nothing of theirs waits any longer. */
  dropMessages(draft: Draft, places: readonly MessagePlace[]): void;
  /** For a commit that deletes a conversation. */
  dropConversation(draft: Draft, owner: string, conversation: string): void;
  /** Stores vectors and takes what they waited for from the queue. What has changed since, or is gone, waits on. */
  finish(finished: readonly FinishedRow[]): Promise<void>;
  /** Stores vectors that waited for nothing. */
  put: Vectors["put"];
  /** Messages, or all of a conversation, outside of any other commit. */
  delete: Vectors["delete"];
  clear: Vectors["clear"];
  search(query: VectorQuery): ReturnType<Vectors["search"]>;
}
