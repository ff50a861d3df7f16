/** Where an execution runs: the store, and who else uses it. */
import type { Store } from "../../storage/store.ts";

export interface ExecutionEnvironment {
  readonly store: Store;
  /** This process, as open rows name it. */
  readonly process: string;
  /** Whether other processes use the store: then each commit expects that the execution still is ours. */
  readonly shared: boolean;
  /** Whether the store ends with the process: nobody could go on from a journal in it, so that there is none. */
  readonly volatile: boolean;
}
