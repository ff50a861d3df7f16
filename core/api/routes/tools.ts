/** Tools: listing and execution, and the approvals that their calls wait for. */
import type { Service } from "../../app/service.ts";
import type { Context } from "../../http/route.ts";
import { systemTime } from "../../lib/clock.ts";
import { notFound, quoted } from "../../lib/errors.ts";
import { isoTime } from "../../lib/iso-time.ts";
import { Serialized } from "../../lib/serialized.ts";
import { executeTool, toolResultText } from "../../tools/execute.ts";
import { get, manage, post } from "./row.ts";

export const TOOL_ROUTES = [
  manage("/tools", "tools.list", "List tools", {
    output: "ToolList",
    handle: (_input, { service }) => service.toolList(),
  }),
  post("/tools/:name/execute", "tools.execute", "Execute a tool", {
    body: "ExecuteToolRequest",
    idempotent: true,
    failures: ["conflict"],
    readsHeaders: ["x-approval-id"],
    output: "ToolExecutionResult",
    handle: ({ params, body }, call) => execute(call.service, params.name!, body, call),
  }),
];

function execute(service: Service, name: string, body: { input: unknown; context?: object }, call: Context<Service>) {
  const tool = service.tools.get(name);
  if (tool === undefined) throw notFound(`tool ${quoted(name)} does not exist`);
  const started = performance.now();
  const approval = { kind: "direct", id: call.headers["x-approval-id"] } as const;
  const context = (body.context ?? {}) as Record<string, unknown>;
  const result = executeTool(tool, body.input, { call, context, approval, progress: call.progress });
  return result instanceof Promise
    ? result.then((later) => replyOf(name, later, started))
    : replyOf(name, result, started);
}

/** @param started by the steady clock */
function replyOf(name: string, result: unknown, started: number): Serialized {
  // Milliseconds, rounded to microseconds.
  const executionTime = Math.round((performance.now() - started) * 1000) / 1000;
  const timestamp = isoTime(systemTime());
  const toolName = JSON.stringify(name);
  const text = toolResultText(name, result);
  return new Serialized(
    `{"toolName":${toolName},"result":${text},"executionTime":${executionTime},"timestamp":"${timestamp}"}`,
  );
}

// Approvals: questions to people before a tool runs.

export const APPROVAL_ROUTES = [
  get("/approvals", "approvals.list", "List approvals, oldest first", {
    query: "ApprovalsQuery",
    output: { envelope: "ApprovalsReply" },
    handle: ({ query }, call) => call.service.approvals.list(query, call),
  }),
  post("/approvals/:approvalId", "approvals.answer", "Approve a call of a tool, or refuse it", {
    description: "The first answer is the decision. The same answer again is no error, another one is a conflict.",
    body: "AnswerApprovalRequest",
    idempotent: true,
    failures: ["conflict"],
    output: "Approval",
    handle: ({ params, body }, call) => call.service.approvals.answer(params.approvalId!, body, call),
  }),
];
