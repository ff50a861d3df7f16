/** What the files of the memory domain share: the store, the caches and the semantic indexes. */
import type { Copies } from "../lib/copies.ts";
import type { KeyedMutex } from "../lib/keyed-mutex.ts";
import type { Sequence } from "../storage/sequence.ts";
import type { IdSpaces, Store } from "../storage/store.ts";
import type { RecentMessages } from "./messages/recent.ts";
import type { Conversations } from "./records/directory.ts";
import type { Semantic } from "./semantic/semantic.ts";

export type OnDelete = (conversation: { memory: string; id: string; userId: string }) => Promise<void>;

export interface Domain {
  readonly store: Store;
  readonly spaces: IdSpaces;
  readonly conversations: Conversations;
  readonly recent: RecentMessages;
  /** Serializes work on one conversation within this process. */
  readonly mutex: KeyedMutex;
  readonly copies: Copies;
  /** Internal numbers of conversations. */
  readonly numbers: Sequence;
  /** Semantic indexes by the name of the memory. */
  readonly semantic: ReadonlyMap<string, Semantic>;
  /** In `memory:`: removes conversations until those that are left fit into their room. */
  readonly makeRoom?: (() => void) | undefined;
  /** Called when a client has deleted a conversation. Must not reject. */
  readonly onDelete?: OnDelete | undefined;
  /** Milliseconds since 1970; never goes backwards. */
  readonly now: () => number;
}
