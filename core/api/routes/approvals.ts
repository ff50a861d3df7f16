/** Approvals: questions to people before a tool runs. */
import type { Service } from "../../app/service.ts";
import { typedRoute } from "../../http/route.ts";

export const APPROVAL_ROUTES = [
  typedRoute<Service, "ApprovalsQuery">({
    operation: "approvals.list",
    method: "GET",
    path: "/approvals",
    group: "execution",
    summary: "List approvals, oldest first",
    query: "ApprovalsQuery",
    output: { envelope: "ApprovalsReply" },
    handle: ({ query }, call) => call.service.approvals.list(query, call),
  }),
  typedRoute<Service, undefined, "AnswerApprovalRequest">({
    operation: "approvals.answer",
    method: "POST",
    path: "/approvals/:approvalId",
    group: "execution",
    summary: "Approve a call of a tool, or refuse it",
    description: "The first answer is the decision. The same answer again is no error, another one is a conflict.",
    body: "AnswerApprovalRequest",
    idempotent: true,
    failures: ["conflict"],
    output: { json: "Approval" },
    handle: ({ params, body }, call) => call.service.approvals.answer(params.approvalId!, body, call),
  }),
];
