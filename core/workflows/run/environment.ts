/** What an execution is given when it runs in this process: the store, the caller, and what is on disk of it already. */
import type { Logger } from "pino";
import type { SpanOrigin } from "../../observability/span.ts";
import type { Row, Store } from "../../storage/store.ts";
import type { Loaded } from "../journal/load.ts";

export interface ExecutionEnvironment {
  readonly store: Store;
  /** This process, as open rows name it. */
  readonly process: string;
  /** Whether other processes use the store: then each commit expects that the execution still is ours. */
  readonly shared: boolean;
  /** Whether the store ends with the process: nobody could go on from a journal in it, so that there is none. */
  readonly volatile: boolean;
}

/** On whose behalf it runs at present. */
export interface ExecutionCaller {
  readonly requestId: string;
  readonly logger: Logger;
  /** What its spans begin from. */
  readonly trace?: SpanOrigin | undefined;
}

/** What is on disk of an execution that goes on. */
export interface StoredRows {
  readonly loaded: Loaded;
  /** The row that it goes on from: its open row, when another process left it; its record, when it rests. */
  readonly openRow: Row | null;
  readonly recordRow: Row | null;
}
