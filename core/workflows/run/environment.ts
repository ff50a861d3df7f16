/** What an execution is given when it runs in this process: the store, the caller, and what is on disk of it already. */
import type { Logger } from "pino";
import type { SpanOrigin } from "../../observability/span.ts";
import type { Membership } from "../../storage/membership.ts";
import type { Row, Store } from "../../storage/store.ts";
import type { Loaded } from "../journal/load.ts";

/** Whether this process still has what it runs, for effects that come long after the last commit. */
export type Lease = Pick<Membership, "isHeld" | "confirm">;

export interface ExecutionEnvironment {
  readonly store: Store;
  /** The name of this process in open rows, at present. */
  readonly process: string;
  /** Whether other processes use the store too: then each commit makes sure that none of them has recovered the execution. */
  readonly shared: boolean;
  /** Null where no other process uses the store. */
  readonly lease: Lease | null;
  /** Whether the store ends with the process: then no journal is written, because nobody could go on from it. */
  readonly volatile: boolean;
  /** How much an execution that begins or goes on now may record: its start and the entries of its journal. */
  readonly maxBytes: number;
  /** Told of each that has recorded more. */
  tooLarge?(): void;
}

/** The request on whose behalf the execution runs at present. */
export interface ExecutionCaller {
  readonly requestId: string;
  readonly logger: Logger;
  /** What its spans begin from. */
  readonly trace?: SpanOrigin | undefined;
}

/** What is on disk of an execution that goes on: one of the two rows is null. */
export interface StoredRows {
  readonly loaded: Loaded;
  /** `openRow` when it is recovered, `recordRow` when it is resumed. */
  readonly openRow: Row | null;
  readonly recordRow: Row | null;
}
