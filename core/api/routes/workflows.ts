/** Workflows and their executions. */

import type { Service } from "../../app/service.ts";
import { type Context, typedRoute } from "../../http/route.ts";
import { principalOf } from "../../identity/principal.ts";
import { executionIdParam, executionQuery, parseEventCursor } from "../../workflows/input.ts";
import type { WorkflowAccess } from "../../workflows/workflows.ts";

const STREAM_FAILURE = (error: string) => ({ type: "error", error });

/** The workflows as the caller sees them. */
const open = (call: Context<Service>): WorkflowAccess =>
  call.service.workflows.for(principalOf(call, call.service.isolated));

export const WORKFLOW_ROUTES = [
  typedRoute<Service>({
    operation: "workflows.list",
    method: "GET",
    path: "/workflows",
    group: "management",
    summary: "List workflows",
    output: { json: "WorkflowList" },
    handle: (_input, { service }) => service.workflows.list(),
  }),
  typedRoute<Service>({
    operation: "workflows.get",
    method: "GET",
    path: "/workflows/:id",
    group: "management",
    summary: "Inspect a workflow",
    output: { json: "WorkflowDetail" },
    handle: ({ params }, { service }) => service.workflows.detail(params.id!),
  }),
  typedRoute<Service, "ExecutionsQuery">({
    operation: "workflows.listExecutions",
    method: "GET",
    path: "/workflows/executions",
    group: "management",
    summary: "List executions, newest first",
    description:
      "`metadata.KEY=VALUE` keeps those whose metadata has the key with that text or JSON value; it may be given for several keys.",
    query: "ExecutionsQuery",
    failures: ["not_found"],
    output: { json: "WorkflowExecutionList" },
    handle: ({ query }, call) => open(call).executions(executionQuery(query)),
  }),
  typedRoute<Service, undefined, "ExecuteWorkflowRequest">({
    operation: "workflows.execute",
    method: "POST",
    path: "/workflows/:id/execute",
    group: "execution",
    summary: "Execute a workflow",
    description:
      "Answers when the execution rests. A step that fails after its retries is a 500 with what it said, and `x-execution-id`. A client that leaves does not stop the execution. With `options.background` it answers 202 as soon as the execution is on disk; `location` says where to ask for it.",
    body: "ExecuteWorkflowRequest",
    idempotent: true,
    failures: ["conflict"],
    output: { json: "ExecutionResult", accepted: "ExecutionStarted" },
    handle: ({ params, body }, call) =>
      body.options?.background === true
        ? open(call).begin(params.id!, body, call)
        : open(call).execute(params.id!, body, call),
  }),
  typedRoute<Service, undefined, "ExecuteWorkflowRequest">({
    operation: "workflows.stream",
    method: "POST",
    path: "/workflows/:id/stream",
    group: "execution",
    summary: "Execute a workflow and stream its events",
    description: "The last event is `workflow-result`. A client that leaves does not stop the execution.",
    body: "ExecuteWorkflowRequest",
    idempotent: "stream",
    failures: ["conflict"],
    output: { events: "WorkflowStreamEvent", failure: STREAM_FAILURE, resumable: true },
    handle: ({ params, body }, call) => open(call).stream(params.id!, body, call),
  }),
  typedRoute<Service, "AttachQuery">({
    operation: "workflows.attach",
    method: "GET",
    path: "/workflows/:id/executions/:executionId/stream",
    group: "execution",
    summary: "Read the events of an execution again, and follow it",
    description:
      "Begins after the event that the header `Last-Event-ID` or `fromSequence` names. The stream of an execution that rests ends with its last event.",
    query: "AttachQuery",
    readsHeaders: true,
    output: { events: "WorkflowStreamEvent", failure: STREAM_FAILURE, resumable: true },
    handle({ params, query }, call) {
      const { id } = params;
      const executionId = executionIdParam(params);
      return open(call).attach(id!, executionId, parseEventCursor(query, call.headers), query.userId);
    },
  }),
  typedRoute<Service, "OwnerQuery", "SuspendExecutionRequest">({
    operation: "workflows.suspend",
    method: "POST",
    path: "/workflows/:id/executions/:executionId/suspend",
    group: "execution",
    summary: "Suspend a running execution",
    description: "It stops before its next step, or at once where a step heeds its signal.",
    query: "OwnerQuery",
    body: "SuspendExecutionRequest",
    idempotent: true,
    bodyOptional: true,
    output: { json: "ExecutionSuspended" },
    handle: ({ params, query, body }, call) =>
      open(call).suspend(params.id!, executionIdParam(params), body.reason, query.userId),
  }),
  typedRoute<Service, "OwnerQuery", "ResumeExecutionRequest">({
    operation: "workflows.resume",
    method: "POST",
    path: "/workflows/:id/executions/:executionId/resume",
    group: "execution",
    summary: "Resume a suspended execution",
    description:
      "Answers when the execution rests again. A step that waits while others run can be resumed too, when `options.stepId` names it.",
    query: "OwnerQuery",
    body: "ResumeExecutionRequest",
    idempotent: true,
    bodyOptional: true,
    failures: ["conflict"],
    output: { json: "ExecutionResult" },
    handle: ({ params, query, body }, call) =>
      open(call).resume(params.id!, executionIdParam(params), body, call, query.userId),
  }),
  typedRoute<Service, "OwnerQuery", "ReplayExecutionRequest">({
    operation: "workflows.replay",
    method: "POST",
    path: "/workflows/:id/executions/:executionId/replay",
    group: "execution",
    summary: "Run a past execution again from one of its steps, as a new one",
    description:
      "What came before the step is taken over. Answers when the new execution rests; the old one is unchanged.",
    query: "OwnerQuery",
    body: "ReplayExecutionRequest",
    idempotent: true,
    output: { json: "ExecutionResult" },
    handle: ({ params, query, body }, call) =>
      open(call).replay(params.id!, executionIdParam(params), body, call, query.userId),
  }),
  typedRoute<Service, "OwnerQuery", "CancelExecutionRequest">({
    operation: "workflows.cancel",
    method: "POST",
    path: "/workflows/:id/executions/:executionId/cancel",
    group: "execution",
    summary: "Cancel a running or suspended execution",
    description: "A step that does not heed its signal is given up after 5 s.",
    query: "OwnerQuery",
    body: "CancelExecutionRequest",
    idempotent: true,
    bodyOptional: true,
    output: { json: "ExecutionCancellation" },
    handle: ({ params, query, body }, call) =>
      open(call).cancel(params.id!, executionIdParam(params), body.reason, query.userId),
  }),
  typedRoute<Service, "OwnerQuery">({
    operation: "workflows.getState",
    method: "GET",
    path: "/workflows/:id/executions/:executionId/state",
    group: "management",
    summary: "Inspect the state of an execution",
    query: "OwnerQuery",
    output: { json: "ExecutionState" },
    handle: ({ params, query }, call) => open(call).state(params.id!, executionIdParam(params), query.userId),
  }),
];
