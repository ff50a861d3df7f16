/** The interface of workflows and their executions for the rest of the service. */
import type {
  ExecuteWorkflowRequest,
  ExecutionCancellation,
  ExecutionStarted,
  ExecutionState,
  ExecutionSuspended,
  ReplayExecutionRequest,
  ResumeExecutionRequest,
  WorkflowDetail,
} from "../../generated/types.ts";
import type { Charge } from "../http/exchange.ts";
import type { Context } from "../http/route.ts";
import type { Principal } from "../identity/principal.ts";
import type { EventProducer } from "../lib/event-sink.ts";
import type { Serialized } from "../lib/serialized.ts";
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

export interface Workflows {
  /** `data` of `GET /workflows`. Built again only when the status of a workflow has changed. */
  list(): Serialized | Promise<Serialized>;
  /** @throws ServiceError `not_found` */
  detail(id: string): WorkflowDetail | Promise<WorkflowDetail>;
  /** Whether the execution with this number runs in this process. */
  runsHere(number: number): boolean;
  /** @param charge counts what is held of the executions that are read */
  for(principal: Principal, charge?: Charge): WorkflowAccess;
}

/**
 * The workflows for one principal. Errors are ServiceErrors:
 * - `not_found`: the workflow or execution is unknown, or belongs to another user or another workflow.
 * - `invalid_input`: the input is invalid, or several users have an execution with this id and `userId` does not say whose is meant.
 * - `conflict`: the id of a new execution is taken.
 * - `step_failed`, with the header `x-execution-id`: a step failed.
 * - `unavailable`: the store cannot be used, or too many executions run.
 */
export interface WorkflowAccess {
  /** Resolves with `data` of the reply when the execution has settled. It continues when the client leaves. */
  execute(workflowId: string, body: ExecuteWorkflowRequest, call: WorkflowCall): Promise<Serialized>;
  /** Resolves when the execution is in the store: with `data` of the reply. */
  begin(workflowId: string, body: ExecuteWorkflowRequest, call: WorkflowCall): Promise<ExecutionStarted>;
  /** Resolves when the execution is in the store. */
  stream(workflowId: string, body: ExecuteWorkflowRequest, call: WorkflowCall): Promise<EventProducer>;
  suspend(
    workflowId: string,
    executionId: string,
    reason: string | undefined,
    userId?: string,
  ): Promise<ExecutionSuspended>;
  cancel(
    workflowId: string,
    executionId: string,
    reason: string | undefined,
    userId?: string,
  ): Promise<ExecutionCancellation>;
  resume(
    workflowId: string,
    executionId: string,
    body: ResumeExecutionRequest,
    call: WorkflowCall,
    userId?: string,
  ): Promise<Serialized>;
  replay(
    workflowId: string,
    executionId: string,
    body: ReplayExecutionRequest,
    call: WorkflowCall,
    userId?: string,
  ): Promise<Serialized>;
  state(workflowId: string, executionId: string, userId?: string): Promise<ExecutionState>;
  /** A page of executions, newest first. */
  executions(query: ExecutionQuery): Promise<Serialized>;
  /** The events after the one numbered `after`, then new ones until the execution settles. */
  attach(workflowId: string, executionId: string, after: number, userId?: string): Promise<EventProducer>;
}
