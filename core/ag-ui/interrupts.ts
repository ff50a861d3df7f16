/** Approvals as interrupts: the questions with which a run ends, and the answers in the client's next run. */
import type { AgUiInterrupt, AgUiResume, AnswerApprovalRequest, Approval } from "../../generated/types.ts";
import type { PendingApproval } from "../agents/run/parts.ts";
import type { Approvals } from "../approvals/approvals.ts";
import type { Requester } from "../identity/principal.ts";
import { canonicalJson } from "../lib/canonical-json.ts";
import { invalid, ServiceError } from "../lib/errors.ts";
import { isObject } from "../lib/is-object.ts";
import type { UiPart } from "./content.ts";
import type { UiMessage } from "./messages.ts";

/** Schema of a client's answer. */
const RESPONSE_SCHEMA = {
  type: "object",
  properties: {
    approved: { type: "boolean", description: "Whether the tool may run." },
    reason: { type: "string", description: "Why, for the model.", maxLength: 1000 },
    editedArgs: { type: "object", description: "Runs in place of the input that was asked." },
  },
  required: ["approved"],
};

/** The interrupts for calls whose questions are open, but for those that the requester cannot answer. */
export async function interruptsOf(
  calls: readonly Omit<PendingApproval, "input">[],
  approvals: Approvals,
  requester: Requester,
): Promise<AgUiInterrupt[]> {
  const found = await Promise.all(calls.map(({ approvalId }) => approvals.find(approvalId, requester)));
  return calls.flatMap(({ toolCallId, toolName }, index) => {
    const asked = found[index];
    if (asked?.status !== "open" || !approvals.mayAnswer(asked, requester)) return [];
    const { approvalId: id, expiresAt } = asked;
    const message = `The tool ${toolName} waits for approval.`;
    return [{ id, reason: "tool_call", message, toolCallId, expiresAt, responseSchema: RESPONSE_SCHEMA }];
  });
}

interface ResumeAnswer {
  readonly approvalId: string;
  readonly body: AnswerApprovalRequest;
  /** Path of the edited input in the request. */
  readonly field: string;
}

/** @throws ServiceError `invalid_input` that names the field */
export function readResume(resume: readonly AgUiResume[]): ResumeAnswer[] {
  return resume.map(({ interruptId: approvalId, status, payload }, index) => {
    const path = `resume[${index}].payload`;
    const field = `${path}.editedArgs`;
    if (status === "cancelled") return { approvalId, body: { approved: false }, field };
    if (!isObject(payload) || typeof payload.approved !== "boolean")
      throw invalid(`${path} must be an object with approved, true or false`);
    const { approved, reason, editedArgs } = payload;
    if (reason !== undefined && (typeof reason !== "string" || reason.length > MAX_REASON))
      throw invalid(`${path}.reason must be a string of at most ${MAX_REASON} characters`);
    const edited = editedArgs === undefined || editedArgs === null ? undefined : { input: editedArgs };
    return { approvalId, body: { approved, ...(reason !== undefined && { reason }), ...(approved && edited) }, field };
  });
}

const MAX_REASON = 1000;

/** The agent and conversation of the run, and the requester that continues it. */
interface Resumed {
  readonly agentId: string;
  readonly threadId: string;
  readonly approvals: Approvals;
  readonly requester: Requester;
}

/** How many open questions are searched for those of unanswered calls. */
const MAX_OPEN = 500;

/**
 * Marks the calls at the end of the messages that wait for a person, so that the run continues with them: those that the request
 * answers, and those that are still open. A call with an answer that does not belong to it is refused by the run.
 *
 * @returns the answers that belong to them
 * @throws ServiceError `invalid_input` for an answer to a call that is not at the end of the messages
 */
export async function markAwaited(
  messages: readonly UiMessage[],
  answers: readonly ResumeAnswer[],
  { agentId, threadId, approvals, requester }: Resumed,
): Promise<ResumeAnswer[]> {
  const calls = openCalls(messages.at(-1));
  const known: ResumeAnswer[] = [];
  let unknown: string | undefined;
  for (const [index, answer] of answers.entries()) {
    const approval = await approvals.find(answer.approvalId, requester);
    // The question may have been answered long ago and deleted.
    const call = approval?.agentId === agentId ? calls.get(approval.toolCallId ?? "") : undefined;
    if (call === undefined) {
      if (approval?.agentId === agentId && approval.status === "open")
        throw invalid(`resume[${index}]: the call ${approval.toolCallId} is not the last of messages`);
      unknown ??= answer.approvalId;
      continue;
    }
    wait(call, answer.approvalId);
    calls.delete(approval!.toolCallId!);
    if (fits(call, approval!)) known.push(answer);
  }
  if (calls.size === 0) return known;
  const newest = { status: "open", agentId, limit: MAX_OPEN, order: "desc" } as const;
  const { data: open } = await approvals.list(newest, requester);
  for (const { approvalId, toolCallId = "", conversationId } of open) {
    const call = conversationId === threadId ? calls.get(toolCallId) : undefined;
    if (call === undefined) continue;
    wait(call, approvalId);
    calls.delete(toolCallId);
  }
  if (unknown !== undefined) for (const call of calls.values()) wait(call, unknown);
  return known;
}

/** Whether the client shows the call as it was asked. */
const fits = ({ type, input }: UiPart, approval: Approval): boolean =>
  type === `tool-${approval.toolName}` && canonicalJson(input) === canonicalJson(approval.input);

/** Calls without a result in the last answer of the messages, by id. */
export function openCalls(last: UiMessage | undefined): Map<string, UiPart> {
  const calls = new Map<string, UiPart>();
  if (last?.role !== "assistant") return calls;
  for (const part of last.parts) if (part.state === "input-available") calls.set(part.toolCallId as string, part);
  return calls;
}

const wait = (call: UiPart, id: string) => Object.assign(call, { state: "approval-requested", approval: { id } });

/** Passes an answer on. It is ignored when somebody was first, or when the user may not answer: the run then uses what was decided. */
export async function giveAnswer(approvals: Approvals, answer: ResumeAnswer, requester: Requester): Promise<void> {
  const { approvalId, body, field } = answer;
  try {
    await approvals.answer(approvalId, body, requester);
  } catch (error) {
    if (!(error instanceof ServiceError) || error.kind === "unavailable") throw error;
    if (error.kind === "invalid_input") throw invalid(error.message.replace(INPUT_FIELD, `$1${field}`));
  }
}

/** The name of the edited input in problems that the approvals report, to be replaced with the field of the request. */
const INPUT_FIELD = /(^|; )input(?=[ .[:])/g;
