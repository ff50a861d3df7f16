/** Turns results into results of MCP: text for models, and the object itself for programs. */
import type { ExecutionResult, McpCallResult, TextResult, ToolExecutionResult } from "../../generated/types.ts";
import { toMcp } from "../agents/prompt/results.ts";
import { unfinished } from "../agents/run/usage.ts";
import { isObject } from "../lib/is-object.ts";
import { isContent } from "../tools/content.ts";

/** A text stays a text, content is content, anything else is JSON. */
export function toolResult({ result }: ToolExecutionResult): McpCallResult {
  if (isContent(result)) {
    const { value, structuredContent } = result;
    return { content: value.map(toMcp), ...(structuredContent && { structuredContent }) };
  }
  const text = typeof result === "string" ? result : JSON.stringify(result);
  return withStructure([text], result);
}

/** An answer that is not whole is an error, with what the agent has said. For a run that waits, a second text says for what. */
export function agentResult(id: string, result: TextResult): McpCallResult {
  const { runId, approvals = [] } = result;
  if (runId !== undefined) {
    const ids = approvals.map(({ approvalId, toolName }) => `${approvalId} (${toolName})`).join(", ");
    const waits = `Run ${runId} waits for a person to answer approval ${ids}. It goes on by itself then.`;
    return withStructure(result.text === "" ? [waits] : [result.text, waits], result);
  }
  const problem = unfinished(id, result.finishReason);
  if (problem === null) return withStructure([result.text], result);
  return { ...withStructure([problem, result.text], result), isError: true };
}

/** For a suspended execution, a second text says how to resume it. */
export function executionResult(result: ExecutionResult, resumeTool: string): McpCallResult {
  const texts = [JSON.stringify(result)];
  const { executionId, status, suspension } = result;
  if (status === "suspended") {
    const call = JSON.stringify({ executionId, resumeData: "..." });
    texts.push(`The workflow waits: ${suspension?.reason ?? ""}\nTo go on, call ${resumeTool} with ${call}.`);
  }
  return withStructure(texts, result);
}

function withStructure(texts: readonly string[], value: unknown): McpCallResult {
  const content = texts.map((text) => ({ type: "text" as const, text }));
  return isObject(value) ? { content, structuredContent: value as Record<string, unknown> } : { content };
}
