/** Approvals: questions to people before a tool runs. */
import { get, post } from "./row.ts";

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
