/** `POST /agents/:id/text`: the result of a finished run. */
import type { TextResult } from "../../../generated/types.ts";
import type { RunResult } from "../run/run.ts";

export function textResult(outcome: RunResult): TextResult {
  const { approvals, runId, messageId, userMessageId } = outcome;
  const result = finished(outcome);
  if (approvals.length > 0) result.approvals = approvals;
  if (runId !== undefined) result.runId = runId;
  if (messageId !== undefined) result.messageId = messageId;
  if (userMessageId !== undefined) result.userMessageId = userMessageId;
  return result;
}

function finished(outcome: RunResult): TextResult {
  const { text, usage, model, finishReason, toolCalls, toolResults } = outcome;
  if (outcome.output === undefined) return { text, usage, model, finishReason, toolCalls, toolResults };
  return { text, output: outcome.output, usage, model, finishReason, toolCalls, toolResults };
}
