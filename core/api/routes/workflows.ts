/** Workflows and their executions. */
import type { ExecuteWorkflowRequest, ExecutionStarted } from "../../../generated/types.ts";
import type { Service } from "../../app/service.ts";
import type { Context } from "../../http/route.ts";
import { principalOf } from "../../identity/principal.ts";
import { executionIdParam, executionQuery, parseEventCursor } from "../../workflows/begin.ts";
import type { WorkflowAccess } from "../../workflows/scoped.ts";
import { STREAM_FAILURE } from "./agents.ts";
import { get, manage, post } from "./row.ts";

/** The workflows as the caller sees them. */
const open = (call: Context<Service>): WorkflowAccess =>
  call.service.workflows.for(principalOf(call, call.service.isolated), call.charge);

async function begun(id: string, body: ExecuteWorkflowRequest, call: Context<Service>): Promise<ExecutionStarted> {
  const started = await open(call).begin(id, body, call);
  call.replyWith = { facts: { location: `/workflows/${id}/executions/${started.executionId}/state` }, status: 202 };
  return started;
}

export const WORKFLOW_ROUTES = [
  manage("/workflows", "workflows.list", "List workflows", {
    output: "WorkflowList",
    handle: (_input, { service }) => service.workflows.list(),
  }),
  manage("/workflows/:id", "workflows.get", "Inspect a workflow", {
    output: "WorkflowDetail",
    handle: ({ params }, { service }) => service.workflows.detail(params.id!),
  }),
  manage("/workflows/executions", "workflows.listExecutions", "List executions, newest first", {
    description:
      "`metadata.KEY=VALUE` keeps those whose metadata has the key with that text or JSON value; it may be given for several keys.",
    query: "ExecutionsQuery",
    failures: ["not_found"],
    output: "WorkflowExecutionList",
    handle: ({ query }, call) => open(call).executions(executionQuery(query)),
  }),
  post("/workflows/:id/execute", "workflows.execute", "Execute a workflow", {
    description:
      "Answers when the execution rests. A step that fails after its retries is a 500 with what it said, and `x-execution-id`. A client that leaves does not stop the execution. With `options.background` it answers 202 as soon as the execution is on disk; `location` says where to ask for it.",
    body: "ExecuteWorkflowRequest",
    idempotent: true,
    failures: ["conflict"],
    output: { json: "ExecutionResult", accepted: "ExecutionStarted" },
    handle: ({ params, body }, call) =>
      body.options?.background === true ? begun(params.id!, body, call) : open(call).execute(params.id!, body, call),
  }),
  post("/workflows/:id/stream", "workflows.stream", "Execute a workflow and stream its events", {
    description: "The last event is `workflow-result`. A client that leaves does not stop the execution.",
    body: "ExecuteWorkflowRequest",
    idempotent: "stream",
    failures: ["conflict"],
    output: { events: "WorkflowStreamEvent", failure: STREAM_FAILURE, resumable: true },
    handle: ({ params, body }, call) => open(call).stream(params.id!, body, call),
  }),
  get(
    "/workflows/:id/executions/:executionId/stream",
    "workflows.attach",
    "Read the events of an execution again, and follow it",
    {
      description:
        "Begins after the event that the header `Last-Event-ID` or `fromSequence` names. The stream of an execution that rests ends with its last event.",
      query: "AttachQuery",
      readsHeaders: true,
      holds: true,
      output: { events: "WorkflowStreamEvent", failure: STREAM_FAILURE, resumable: true },
      handle({ params, query }, call) {
        const { id } = params;
        const executionId = executionIdParam(params);
        return open(call).attach(id!, executionId, parseEventCursor(query, call.headers), query.userId);
      },
    },
  ),
  post("/workflows/:id/executions/:executionId/suspend", "workflows.suspend", "Suspend a running execution", {
    description: "It stops before its next step, or at once where a step heeds its signal.",
    query: "OwnerQuery",
    body: "SuspendExecutionRequest",
    idempotent: true,
    bodyOptional: true,
    output: "ExecutionSuspended",
    handle: ({ params, query, body }, call) =>
      open(call).suspend(params.id!, executionIdParam(params), body.reason, query.userId),
  }),
  post("/workflows/:id/executions/:executionId/resume", "workflows.resume", "Resume a suspended execution", {
    description:
      "Answers when the execution rests again. A step that waits while others run can be resumed too, when `options.stepId` names it.",
    query: "OwnerQuery",
    body: "ResumeExecutionRequest",
    idempotent: true,
    bodyOptional: true,
    failures: ["conflict"],
    output: "ExecutionResult",
    handle: ({ params, query, body }, call) =>
      open(call).resume(params.id!, executionIdParam(params), body, call, query.userId),
  }),
  post(
    "/workflows/:id/executions/:executionId/replay",
    "workflows.replay",
    "Run a past execution again from one of its steps, as a new one",
    {
      description:
        "What came before the step is taken over. Answers when the new execution rests; the old one is unchanged.",
      query: "OwnerQuery",
      body: "ReplayExecutionRequest",
      idempotent: true,
      output: "ExecutionResult",
      handle: ({ params, query, body }, call) =>
        open(call).replay(params.id!, executionIdParam(params), body, call, query.userId),
    },
  ),
  post("/workflows/:id/executions/:executionId/cancel", "workflows.cancel", "Cancel a running or suspended execution", {
    description: "A step that does not heed its signal is given up after 5 s.",
    query: "OwnerQuery",
    body: "CancelExecutionRequest",
    idempotent: true,
    bodyOptional: true,
    output: "ExecutionCancellation",
    handle: ({ params, query, body }, call) =>
      open(call).cancel(params.id!, executionIdParam(params), body.reason, query.userId),
  }),
  manage("/workflows/:id/executions/:executionId/state", "workflows.getState", "Inspect the state of an execution", {
    query: "OwnerQuery",
    holds: true,
    output: "ExecutionState",
    handle: ({ params, query }, call) => open(call).state(params.id!, executionIdParam(params), query.userId),
  }),
];
