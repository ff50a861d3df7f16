/** What the API sees of the workflows (contract, "Workflows"). */
import type {
  ExecuteWorkflowRequest,
  ExecutionCancellation,
  ExecutionState,
  ExecutionSuspended,
  ReplayExecutionRequest,
  ResumeExecutionRequest,
  WorkflowDetail,
} from "../../generated/types.ts";
import type { Context } from "../http/route.ts";
import type { Principal } from "../identity/principal.ts";
import type { EventProducer } from "../lib/event-sink.ts";
import type { Serialized } from "../lib/serialized.ts";
import type { ExecutionStatus } from "./journal/entries.ts";

/** Who asked: the part of a request's context that an execution needs. */
export type WorkflowCall = Pick<Context<unknown>, "user" | "caller" | "requestId" | "logger" | "trace" | "cutHeaders">;

/** Filters combine with and. Times are milliseconds since 1970, inclusive. */
export interface ExecutionQuery {
  workflowId?: string;
  status?: ExecutionStatus;
  from?: number;
  to?: number;
  userId?: string;
  /** Every key must have one of the values: JSON values, compared deeply. */
  metadata?: ReadonlyMap<string, readonly unknown[]>;
  limit: number;
  offset: number;
}

export interface Workflows {
  /** `data` of `GET /workflows`, made anew only when the status of a workflow has changed. */
  list(): Serialized;
  /** @throws ServiceError `not_found` */
  detail(id: string): WorkflowDetail;
  for(principal: Principal): WorkflowAccess;
}

/**
 * The workflows for one principal. An unknown workflow or execution, or one that belongs to somebody else or to another
 * workflow, is ServiceError `not_found`; input that makes no sense is `invalid_input`, and so is an id that several users have,
 * unless `userId` says whose is meant; an id that is taken is `conflict`, a step that failed `step_failed` with the header
 * `x-execution-id`, a store that cannot be used `unavailable`.
 */
export interface WorkflowAccess {
  /** Resolves when the execution rests: `data` of the reply. A client that leaves does not stop it. */
  execute(workflowId: string, body: ExecuteWorkflowRequest, call: WorkflowCall): Promise<Serialized>;
  /** Resolves when the execution is on record. */
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
  /** Newest first. */
  executions(query: ExecutionQuery): Promise<Serialized>;
  /** The events after the one numbered `after`, then those to come until the execution rests. */
  attach(workflowId: string, executionId: string, after: number, userId?: string): Promise<EventProducer>;
}
