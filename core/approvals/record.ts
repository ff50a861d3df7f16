/** A question to a person about one tool call, as it is stored and as the API shows it. */
import type { Approval } from "../../generated/types.ts";
import { cutText } from "../lib/cut-text.ts";
import { jsonBytes } from "../lib/size.ts";
import type { ApprovalClaim, CallKind } from "../tools/tool.ts";

export type ApprovalStatus = Approval["status"];
/** Why a question is withdrawn. */
export type WithdrawalReason = "cancelled" | "ended" | "conversation_deleted" | "superseded" | "tool_removed";

/** What a question is part of. */
interface Place
  extends Pick<ApprovalClaim, "agentId" | "toolCallId" | "taskId" | "workflowId" | "executionId" | "stepId" | "runId"> {
  readonly conversationId?: string | undefined;
}

export const placeOf = ({
  agentId,
  toolCallId,
  taskId,
  workflowId,
  executionId,
  stepId,
  runId,
  conversationId,
}: Place): Place => ({ agentId, toolCallId, taskId, workflowId, executionId, stepId, runId, conversationId });

/** Times are milliseconds since 1970. */
export interface ApprovalRecord extends Place {
  readonly id: string;
  readonly toolName: string;
  /** The input of the call. */
  readonly input: unknown;
  /** `context` of the call as a person is shown it; undefined in questions of older releases. */
  readonly context?: Readonly<Record<string, unknown>>;
  readonly contextTruncated?: true;
  /** Digest of the whole context. */
  readonly contextDigest?: string;
  readonly kind: Exclude<CallKind, "none">;
  /** As in the claim, where the call is that of a sub-agent. */
  readonly stepAgentId?: string;
  /** The user to whom the call belongs; empty for none. */
  readonly owner: string;
  /** Digest by which the same question is found again. */
  readonly key: string;
  /** Digest of the calls for which the approval is valid. */
  readonly call: string;
  readonly consoleOnly: boolean;
  readonly createdAt: number;
  readonly expiresAt: number;
  readonly status: ApprovalStatus;
  readonly decidedAt?: number;
  readonly decidedBy?: string;
  readonly reason?: string | undefined;
  /** The edited input, in a list because null is an input too. */
  readonly edited?: readonly [input: unknown] | undefined;
  /** When the call used the answer. For an approved call this is its start. */
  readonly usedAt?: number;
  /** Idempotency key of that call, which is the same when it runs again after a crash. */
  readonly usedBy?: string;
}

/** What an answer changes, or the end of the time for one. */
export interface Decision extends Pick<ApprovalRecord, "decidedBy" | "reason" | "edited"> {
  readonly status: Exclude<ApprovalStatus, "open">;
  readonly decidedAt: number;
}

/** Whether something waits for the answer and must be notified: a step, a kept run, or a task of an older release, which is no run. */
export const isAwaited = ({ kind, taskId, runId }: Pick<ApprovalRecord, "kind" | "taskId" | "runId">): boolean =>
  kind === "step" || (taskId !== undefined && runId === undefined);

/** The input with which the call runs. */
export const approvedInput = ({ edited, input }: Pick<ApprovalRecord, "edited" | "input">): unknown =>
  edited === undefined ? input : edited[0];

/** Longest input of a question, because a person has to read it. */
export const MAX_INPUT_CHARACTERS = 64 * 1024;

/** Bytes of a context that a person is shown. */
const MAX_CONTEXT_BYTES = 16 * 1024;

/** As much of a context as a person is shown: values that are too long are cut to the begin of their JSON. */
export function shownContext(
  context: Readonly<Record<string, unknown>>,
): Pick<ApprovalRecord, "context" | "contextTruncated"> {
  if (jsonBytes(context) <= MAX_CONTEXT_BYTES) return { context };
  const shown: Record<string, unknown> = {};
  let room = MAX_CONTEXT_BYTES - 2;
  for (const [name, value] of Object.entries(context)) {
    const cut = jsonBytes(value) <= MAX_VALUE_BYTES ? value : `${cutText(JSON.stringify(value), MAX_VALUE_CUT)}…`;
    room -= jsonBytes(name) + jsonBytes(cut) + 2;
    if (room < 0) break;
    shown[name] = cut;
  }
  return { context: shown, contextTruncated: true };
}

/** Of one value of a context that is cut. */
const MAX_VALUE_BYTES = 1024;
const MAX_VALUE_CUT = 200;

const iso = (time: number | undefined) => (time === undefined ? undefined : new Date(time).toISOString());

export function approvalView(record: ApprovalRecord): Approval {
  const { toolName, input, context, contextTruncated, status, decidedBy, reason } = record;
  const { id, owner, runId, consoleOnly, createdAt, expiresAt, decidedAt, edited, usedAt } = record;
  return {
    approvalId: id,
    toolName,
    input,
    context,
    contextTruncated,
    ...placeOf(record),
    // For its clients a kept run is not an execution.
    ...(runId !== undefined && { executionId: undefined, workflowId: undefined, stepId: undefined }),
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
