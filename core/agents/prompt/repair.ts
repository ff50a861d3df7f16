/**
 * Repairs prompts that were cut out of a conversation, or composed by clients. Models refuse a tool call without a result and a result
 * without its call: the newest messages of a conversation may begin or end between the two, and a client may leave a call
 * unanswered.
 */
import type { LanguageModelV3Message } from "@ai-sdk/provider";
import type { AssistantContent, ToolContent } from "./content.ts";
import { toolFailure } from "./tool-output.ts";
import { CALL_NOT_COMPLETED } from "./ui-input.ts";

/** The messages with every tool call answered right after it; results without a call are dropped. */
export function repairPrompt(messages: readonly LanguageModelV3Message[]): LanguageModelV3Message[] {
  const result: LanguageModelV3Message[] = [];
  let open = NO_CALLS;
  for (const message of messages) {
    if (message.role === "tool") {
      const content = message.content.filter((part) => part.type !== "tool-result" || open.delete(part.toolCallId));
      const last = result.at(-1);
      if (content.length === 0) continue;
      if (last?.role === "tool") last.content.push(...content);
      else result.push({ ...message, content });
      continue;
    }
    answerOpenCalls(result, open);
    result.push(message);
    open = message.role === "assistant" ? openCalls(message.content) : NO_CALLS;
  }
  answerOpenCalls(result, open);
  return result;
}

const NO_CALLS = new Map<string, string>();

/** Adds a result to every call that has none, saying so. */
function answerOpenCalls(result: LanguageModelV3Message[], open: ReadonlyMap<string, string>): void {
  if (open.size === 0) return;
  const answers: ToolContent = [];
  for (const [toolCallId, toolName] of open)
    answers.push({ type: "tool-result", toolCallId, toolName, output: toolFailure(CALL_NOT_COMPLETED) });
  const last = result.at(-1)!;
  if (last.role === "tool") last.content.push(...answers);
  else result.push({ role: "tool", content: answers });
}

/** The calls of one message that have no result: name of the tool by id of the call. */
function openCalls(content: AssistantContent): Map<string, string> {
  const open = new Map<string, string>();
  for (const part of content) {
    if (part.type === "tool-call") open.set(part.toolCallId, part.toolName);
    else if (part.type === "tool-result") open.delete(part.toolCallId);
  }
  return open;
}
