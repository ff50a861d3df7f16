/** The result of `POST /agents/:id/text`: a fold over a finished run. */
import type { TextResult } from "../../../generated/types.ts";
import type { RunOutcome } from "../run/run.ts";

export function textResult(outcome: RunOutcome): TextResult {
  const { text, usage, finishReason, toolCalls, toolResults } = outcome;
  if (outcome.output === undefined) return { text, usage, finishReason, toolCalls, toolResults };
  return { text, output: outcome.output, usage, finishReason, toolCalls, toolResults };
}
