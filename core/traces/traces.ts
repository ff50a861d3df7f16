/** What the API sees of traces (contract, "Observability"). */
import type { ObservabilityStatus, SpanRecord, TraceDetail, TraceSummary } from "../../generated/types.ts";
import type { Feed } from "../http/feed.ts";
import type { Principal } from "../identity/principal.ts";
import type { SpanSink } from "../observability/sink.ts";
import type { EntityType } from "../observability/span.ts";
import type { SpanNews } from "./span-feed.ts";

export type TraceStatus = "running" | "completed" | "error";

/** Filters combine with and. Times are milliseconds since 1970, inclusive, of when a trace began. */
export interface TraceQuery {
  /** Of anybody whose work is part of the trace. */
  entityId?: string;
  entityType?: EntityType;
  status?: TraceStatus;
  from?: number;
  to?: number;
  limit: number;
  offset: number;
}

/** The traces for one principal. One that is somebody else's is not there, as an unknown one: ServiceError `not_found`. */
export interface TraceAccess {
  /** Those that run, the newest first, then those that have ended, the last one first. */
  list(query: TraceQuery): Promise<TraceSummary[]>;
  get(traceId: string): Promise<TraceDetail>;
  span(spanId: string): Promise<SpanRecord>;
}

export interface Traces {
  /** Where the tracer hands over what it recorded. */
  readonly sink: SpanSink;
  /** Every span as it begins and ends. Nothing is made for it while nobody follows. */
  readonly news: Feed<SpanNews>;
  for(principal: Principal): TraceAccess;
  status(): Promise<Pick<ObservabilityStatus, "storage" | "traceCount" | "spanCount" | "message">>;
  start(): void;
  /** Writes what is not written yet. */
  close(): Promise<void>;
}
