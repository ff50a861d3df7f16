/** Models refuse a call without its answer and an answer without its call; a window over a conversation cuts both apart. */
import type { LanguageModelV3Message } from "@ai-sdk/provider";
import type { AssistantContent, ToolContent } from "../run/run.ts";
import { toolFailure } from "./tool-output.ts";
import { UNANSWERED } from "./ui-input.ts";

/** The messages with every call answered right after it, and no other answers. */
export function repairPrompt(messages: readonly LanguageModelV3Message[]): LanguageModelV3Message[] {
  const result: LanguageModelV3Message[] = [];
  let open = NONE;
  for (const message of messages) {
    if (message.role === "tool") {
      const content = message.content.filter((part) => part.type !== "tool-result" || open.delete(part.toolCallId));
      const last = result.at(-1);
      if (content.length === 0) continue;
      if (last?.role === "tool") last.content.push(...content);
      else result.push({ role: "tool", content });
      continue;
    }
    answer(result, open);
    result.push(message);
    open = message.role === "assistant" ? unanswered(message.content) : NONE;
  }
  answer(result, open);
  return result;
}

const NONE = new Map<string, string>();

/** Gives the calls that are still open an answer that says so. */
function answer(result: LanguageModelV3Message[], open: ReadonlyMap<string, string>): void {
  if (open.size === 0) return;
  const answers: ToolContent = [];
  for (const [toolCallId, toolName] of open)
    answers.push({ type: "tool-result", toolCallId, toolName, output: toolFailure(UNANSWERED) });
  const last = result.at(-1)!;
  if (last.role === "tool") last.content.push(...answers);
  else result.push({ role: "tool", content: answers });
}

/** Calls by id that wait for an answer, with the name of the tool. */
function unanswered(content: AssistantContent): Map<string, string> {
  const open = new Map<string, string>();
  for (const part of content) {
    if (part.type === "tool-call") open.set(part.toolCallId, part.toolName);
    else if (part.type === "tool-result") open.delete(part.toolCallId);
  }
  return open;
}
