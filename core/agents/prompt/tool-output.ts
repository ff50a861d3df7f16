/** Results and failures of tools in the form that models accept. */
import type { LanguageModelV3ToolResultOutput } from "@ai-sdk/provider";

type JsonOutput = Extract<LanguageModelV3ToolResultOutput, { type: "json" }>["value"];

/** A string is sent as text, anything else as JSON. */
export function toolOutput(value: unknown): LanguageModelV3ToolResultOutput {
  if (typeof value === "string") return { type: "text", value };
  return { type: "json", value: (value ?? null) as JsonOutput };
}

export const toolFailure = (message: string): LanguageModelV3ToolResultOutput => ({
  type: "error-text",
  value: message,
});
