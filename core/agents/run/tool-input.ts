/** Tool calls as the model writes them: JSON text in, values out. */
import type { LanguageModelV3ToolCall, LanguageModelV3ToolResult } from "@ai-sdk/provider";
import type { ToolCall } from "./parts.ts";

/** A call that waits for its tool. */
export interface PendingCall {
  readonly part: ToolCall;
  /** What is wrong with the input before any schema is asked, or null. */
  readonly problem: string | null;
}

/** Input that is not JSON is kept as the text it is, so that the reader sees what the model wrote. */
export function readCall(call: LanguageModelV3ToolCall): PendingCall {
  const { input, problem } = readInput(call.input);
  const part: ToolCall = { type: "tool-call", toolCallId: call.toolCallId, toolName: call.toolName, input };
  if (call.providerExecuted === true) part.providerExecuted = true;
  return { part, problem };
}

function readInput(text: string): { input: unknown; problem: string | null } {
  // A tool without parameters is often called with no text at all.
  if (text.trim() === "") return { input: {}, problem: null };
  try {
    return { input: JSON.parse(text), problem: null };
  } catch {
    return { input: text, problem: "the input is not valid JSON" };
  }
}

/** The message of a failure that the provider's own tool reports. */
export function providerFailure(result: LanguageModelV3ToolResult["result"]): string {
  return typeof result === "string" ? result : JSON.stringify(result);
}
