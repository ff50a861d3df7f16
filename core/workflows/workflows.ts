/** What workflows and their executions are asked with. */
import type { Context } from "../http/route.ts";
import type { ExecutionStatus } from "./journal/entries.ts";

/** The part of a request's context that an execution needs. */
export type WorkflowCall = Pick<
  Context<unknown>,
  "user" | "caller" | "requestId" | "logger" | "trace" | "cutShort" | "replyWith"
> &
  Partial<Pick<Context<unknown>, "keyed" | "signal" | "charge">>;

/** An execution must match all filters. Times are milliseconds since 1970, inclusive. */
export interface ExecutionQuery {
  workflowId?: string;
  status?: ExecutionStatus;
  from?: number;
  to?: number;
  userId?: string;
  /** For each key, the JSON values that match it, compared deeply. */
  metadata?: ReadonlyMap<string, readonly unknown[]>;
  limit: number;
  offset: number;
}
