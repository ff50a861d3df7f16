/** A run that waits for a person's approval: it comes to rest, and goes on with the answer in this process or in another. */
import type { ApprovalClaim } from "../../tools/approval.ts";
import type { PendingApproval } from "./parts.ts";

/** What is told of an answer, so that the run goes on. */
export type WaitingPlace = Pick<ApprovalClaim, "taskId" | "workflowId" | "executionId" | "stepId" | "runId" | "keep">;

/** Thrown by a run whose calls wait, and by the call of a tool that is such a run. What else it did is recorded. */
export class RunWaits extends Error {
  readonly approvals: readonly PendingApproval[];

  constructor(approvals: readonly PendingApproval[]) {
    super("the run waits for approval");
    this.approvals = approvals;
  }
}
