/** A question that a person is asked about one call of a tool, as the store has it and as the API shows it. */
import type { Approval } from "../../generated/types.ts";
import type { ApprovalClaim, CallKind } from "../tools/approval.ts";

export type ApprovalStatus = Approval["status"];
type Verdict = Exclude<ApprovalStatus, "open">;

/** Times are milliseconds since 1970. */
export interface ApprovalRecord
  extends Pick<ApprovalClaim, "agentId" | "toolCallId" | "taskId" | "workflowId" | "stepId" | "runId"> {
  readonly id: string;
  readonly toolName: string;
  /** As it was asked. */
  readonly input: unknown;
  readonly kind: Exclude<CallKind, "none">;
  /** The user whose call it is; empty for none. */
  readonly owner: string;
  /** The digest by which the same question is found again. */
  readonly key: string;
  /** The digest of what a call must be that brings this approval. */
  readonly call: string;
  readonly consoleOnly: boolean;
  readonly executionId?: string | undefined;
  readonly conversationId?: string | undefined;
  readonly createdAt: number;
  readonly expiresAt: number;
  readonly status: ApprovalStatus;
  readonly decidedAt?: number;
  readonly decidedBy?: string;
  readonly reason?: string | undefined;
  /** In a list of its own, because null is an input too. */
  readonly edited?: readonly [input: unknown];
  /** When the call took the answer. An approved call begins with this. */
  readonly usedAt?: number;
  /** The key of that call, which is the same when it runs again after a crash. */
  readonly usedBy?: string;
}

/** Whether somebody is to be told of the answer, who goes on with it: a step, or a task of A2A. */
export const isAwaited = ({ kind, taskId }: Pick<ApprovalRecord, "kind" | "taskId">): boolean =>
  kind === "step" || taskId !== undefined;

/** What runs. */
export const approvedInput = ({ edited, input }: Pick<ApprovalRecord, "edited" | "input">): unknown =>
  edited === undefined ? input : edited[0];

const iso = (time: number | undefined) => (time === undefined ? undefined : new Date(time).toISOString());

export function approvalView(record: ApprovalRecord): Approval {
  const { id, toolName, input, owner, agentId, conversationId, toolCallId, taskId, runId } = record;
  // To its clients a kept run is not an execution.
  const { executionId, workflowId, stepId } = runId === undefined ? record : ({} as Partial<ApprovalRecord>);
  const { status, createdAt, expiresAt, decidedAt, decidedBy, reason, edited, usedAt, consoleOnly } = record;
  return {
    approvalId: id,
    toolName,
    input,
    agentId,
    toolCallId,
    taskId,
    workflowId,
    executionId,
    stepId,
    runId,
    conversationId,
    userId: owner === "" ? undefined : owner,
    approvers: consoleOnly ? "console" : "owner",
    status,
    createdAt: iso(createdAt)!,
    expiresAt: iso(expiresAt)!,
    decidedAt: iso(decidedAt),
    decidedBy,
    reason,
    approvedInput: edited?.[0],
    usedAt: iso(usedAt),
  };
}

/** The record with the answer, or with none that came in time. */
export function decided(
  record: ApprovalRecord,
  status: Verdict,
  decision: { at: number; by?: string; reason?: string | undefined; edited?: readonly [unknown] | undefined },
): ApprovalRecord {
  const { at, by, reason, edited } = decision;
  return {
    ...record,
    status,
    decidedAt: at,
    ...(by !== undefined && { decidedBy: by }),
    ...(reason !== undefined && { reason }),
    ...(edited !== undefined && { edited }),
  };
}
