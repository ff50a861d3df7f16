/** Chat completions: the output of a run, as deltas of one message. */
import type { FinishReason, Usage } from "../agents/run/parts.ts";
import type { Said } from "./run-parts.ts";

interface CallDelta {
  readonly index: number;
  readonly id: string;
  readonly type: "function";
  readonly function: { readonly name: string; readonly arguments: string };
}

export type ChatDelta =
  | { readonly content: string }
  | { readonly reasoning_content: string }
  | { readonly tool_calls: readonly [CallDelta] };

type ChatFinish = "stop" | "length" | "tool_calls" | "content_filter";

/** Separates the texts of several steps, which are one text for the client. */
const BETWEEN_TEXTS = "\n\n";

export class ChatDeltas {
  #hasText = false;
  #calls = 0;

  /** Null for output that this protocol cannot express. */
  of(said: Said): ChatDelta | null {
    switch (said.type) {
      case "text-start":
        return this.#hasText ? { content: BETWEEN_TEXTS } : null;
      case "text":
        this.#hasText = true;
        return { content: said.delta };
      case "reasoning":
        return { reasoning_content: said.delta };
      case "call": {
        const { toolCallId: id, toolName: name, input } = said.call;
        const called = { name, arguments: JSON.stringify(input) };
        return { tool_calls: [{ index: this.#calls++, id, type: "function", function: called }] };
      }
      default:
        return null;
    }
  }

  /** The finish reason. A run that may not continue with its own tools counts as cut off. */
  finish(reason: FinishReason): ChatFinish {
    if (this.#calls > 0) return "tool_calls";
    if (reason === "content-filter") return "content_filter";
    return reason === "length" || reason === "tool-calls" ? "length" : "stop";
  }
}

export const chatUsage = (usage: Usage) => ({
  prompt_tokens: usage.promptTokens,
  completion_tokens: usage.completionTokens,
  total_tokens: usage.totalTokens,
  prompt_tokens_details: { cached_tokens: usage.cachedInputTokens },
  completion_tokens_details: { reasoning_tokens: usage.reasoningTokens },
});

/** Joins all deltas to one message. */
export function chatMessage(deltas: readonly ChatDelta[]) {
  let content = "";
  let reasoning = "";
  const calls: Omit<CallDelta, "index">[] = [];
  for (const delta of deltas) {
    if ("content" in delta) content += delta.content;
    else if ("reasoning_content" in delta) reasoning += delta.reasoning_content;
    else for (const { index: _, ...call } of delta.tool_calls) calls.push(call);
  }
  return {
    role: "assistant" as const,
    content: content === "" && calls.length > 0 ? null : content,
    refusal: null,
    ...(reasoning !== "" && { reasoning_content: reasoning }),
    ...(calls.length > 0 && { tool_calls: calls }),
  };
}
