/** What an execution needs to run in this process: the store, the caller, and the rows that are on disk already. */
import type { Logger } from "pino";
import type { Charge } from "../../http/exchange.ts";
import type { SpanOrigin } from "../../observability/span.ts";
import type { Membership } from "../../storage/membership.ts";
import type { Store } from "../../storage/store.ts";
import type { FoundExecution, Loaded } from "../journal/load.ts";

/** Tells whether this process still owns its executions, for side effects long after the last commit. */
export type Lease = Pick<Membership, "isHeld" | "confirm">;

export interface ExecutionEnvironment {
  readonly store: Store;
  /** The current name of this process in open rows. */
  readonly process: string;
  /** Whether other processes use the store too: then each commit makes sure that none of them has recovered the execution. */
  readonly shared: boolean;
  /** Null when no other process uses the store. */
  readonly lease: Lease | null;
  /** Whether the store ends with the process: then no journal is written, because nobody could continue from it. */
  readonly volatile: boolean;
  /** How many bytes an execution that starts or continues now may record: its start and the entries of its journal. */
  maxBytes: number;
  /** Called for each execution that has recorded more. */
  tooLarge?(): void;
}

/** The request for which the execution runs at present. */
export interface ExecutionCaller {
  readonly requestId: string;
  readonly logger: Logger;
  /** Parent of its spans. */
  readonly trace?: SpanOrigin | undefined;
  /** Counts the bytes of that request while the execution runs. */
  readonly charge?: Charge | undefined;
}

/** An execution that continues: it is recovered where it has an open row, else resumed. */
export interface StoredRows {
  readonly loaded: Loaded;
  readonly found: Pick<FoundExecution, "openRow" | "recordRow">;
}
