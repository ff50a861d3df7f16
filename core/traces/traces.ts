/** The interface of traces, as the API and the tracer use it. */
import type { ObservabilityStatus, SpanRecord, TraceDetail, TraceSummary } from "../../generated/types.ts";
import type { Feed } from "../http/feed.ts";
import type { Principal } from "../identity/principal.ts";
import type { SpanSink } from "../observability/sink.ts";
import type { EntityType } from "../observability/span.ts";
import type { SpanNews } from "./span-feed.ts";

export type TraceStatus = "running" | "completed" | "error";

/** Filters are combined with "and". Times of the start of a trace are milliseconds since 1970, inclusive. */
export interface TraceQuery {
  /** An agent, workflow or other entity that took part in the trace. */
  entityId?: string;
  entityType?: EntityType;
  status?: TraceStatus;
  from?: number;
  to?: number;
  limit: number;
  offset: number;
}

/** The traces for one principal. A trace of another user is treated like an unknown one: ServiceError `not_found`. */
export interface TraceAccess {
  /** Running traces, the newest first, then ended ones, the last ended first. */
  list(query: TraceQuery): Promise<TraceSummary[]>;
  get(traceId: string): Promise<TraceDetail>;
  span(spanId: string): Promise<SpanRecord>;
}

export interface Traces {
  /** Receives what the tracer records. */
  readonly sink: SpanSink;
  /** Every span when it starts and when it ends. Costs nothing while there are no followers. */
  readonly news: Feed<SpanNews>;
  for(principal: Principal): TraceAccess;
  status(): Promise<Pick<ObservabilityStatus, "storage" | "traceCount" | "spanCount" | "message">>;
  start(): void;
  /** Writes everything that is not written yet. */
  close(): Promise<void>;
}
