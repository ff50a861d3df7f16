/** The result of `POST /agents/:id/text`: a fold over a finished run. */
import type { FinishReason, ToolCall, ToolResult, Usage } from "./parts.ts";
import type { RunOutcome } from "./run.ts";

export interface TextResult {
  text: string;
  /** Only when `options.output` asked for it. */
  output?: unknown;
  usage: Usage;
  finishReason: FinishReason;
  toolCalls: ToolCall[];
  toolResults: ToolResult[];
}

export function textResult(outcome: RunOutcome): TextResult {
  const { text, usage, finishReason, toolCalls, toolResults } = outcome;
  if (outcome.output === undefined) return { text, usage, finishReason, toolCalls, toolResults };
  return { text, output: outcome.output, usage, finishReason, toolCalls, toolResults };
}
