/** A run that waits for a person's approval: it comes to rest, and goes on with the answer in this process or in another. */

import type { ApprovalClaim } from "../../tools/tool.ts";
import type { ToolContent } from "../prompt/content.ts";
import type { PendingApproval } from "./parts.ts";

/** What is told of an answer, so that the run goes on. */
export type WaitingPlace = Pick<ApprovalClaim, "taskId" | "workflowId" | "executionId" | "stepId" | "runId" | "keep">;

/** Thrown by a run whose calls wait, and by the call of a tool that is such a run. What else it did is recorded. */
export class RunWaits extends Error {
  readonly approvals: readonly PendingApproval[];
  /** What the model reads of the calls of the step; null where the client is shown the question. */
  readonly told: ToolContent | null;

  constructor(approvals: readonly PendingApproval[], told: ToolContent | null) {
    super("the run waits for approval");
    this.approvals = approvals;
    this.told = told;
  }
}
