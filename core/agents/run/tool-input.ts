/** Parses tool calls, whose input models write as JSON text. */
import type { LanguageModelV3ToolCall, LanguageModelV3ToolResult } from "@ai-sdk/provider";
import { isTooDeep, MAX_JSON_DEPTH } from "../../http/decode.ts";
import { changedInteger, parseExactly } from "../../lib/large-integers.ts";
import { providerFailed } from "../../models/failure.ts";
import type { ToolCall } from "./parts.ts";

/** A call that has not run yet. */
export interface PendingCall {
  readonly part: ToolCall;
  /** Why it cannot run, or null. */
  problem: string | null;
}

/**
 * Input that is not JSON is kept as text, so that clients see what the model wrote.
 *
 * @throws ServiceError `provider_failed` for input that is nested more deeply than what clients may send
 */
export function parseToolCall(call: LanguageModelV3ToolCall, toolCallId: string, toolName: string): PendingCall {
  const { input, problem } = parseInput(call.input);
  const part: ToolCall = { type: "tool-call", toolCallId, toolName, input };
  if (call.providerExecuted === true) part.providerExecuted = true;
  return { part, problem };
}

function parseInput(text: string): { input: unknown; problem: string | null } {
  // A tool without parameters is often called with no text at all.
  if (text.trim() === "") return { input: {}, problem: null };
  if (text.length > MAX_JSON_DEPTH * 2 && isTooDeep(Buffer.from(text))) {
    const cause = new Error(`the arguments of a tool call are nested deeper than ${MAX_JSON_DEPTH} levels`);
    throw providerFailed({ reason: "unavailable", retryAfter: null }, cause);
  }
  try {
    const path = changedInteger(text);
    const problem = path === null ? null : `${path || "the input"} is too large for a number: send it as a string`;
    return { input: parseExactly(text), problem };
  } catch {
    return { input: text, problem: "the input is not valid JSON" };
  }
}

/** The error message of a tool that the provider ran. */
export function providerToolError(result: LanguageModelV3ToolResult["result"]): string {
  return typeof result === "string" ? result : JSON.stringify(result);
}
