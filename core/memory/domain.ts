/** What the parts of the memory domain share. */

import type { KeyedMutex } from "../lib/keyed-mutex.ts";
import type { IdSpaces } from "../storage/id-spaces.ts";
import type { Sequence } from "../storage/sequence.ts";
import type { Store } from "../storage/store.ts";
import type { Conversations } from "./records/directory.ts";
import type { Semantic } from "./semantic/semantic.ts";

export interface Domain {
  readonly store: Store;
  readonly spaces: IdSpaces;
  readonly conversations: Conversations;
  readonly mutex: KeyedMutex;
  /** Internal numbers of conversations. */
  readonly numbers: Sequence;
  /** By name of the memory. */
  readonly semantic: ReadonlyMap<string, Semantic>;
  /** Milliseconds since 1970; never goes back. */
  readonly now: () => number;
}
