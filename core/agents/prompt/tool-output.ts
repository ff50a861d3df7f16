/** What a tool gave, as the model is told it. */
import type { LanguageModelV3ToolResultOutput } from "@ai-sdk/provider";

type JsonOutput = Extract<LanguageModelV3ToolResultOutput, { type: "json" }>["value"];

/** A text stays a text, anything else goes as JSON. The value must be JSON-able. */
export function toolOutput(value: unknown): LanguageModelV3ToolResultOutput {
  if (typeof value === "string") return { type: "text", value };
  return { type: "json", value: (value ?? null) as JsonOutput };
}

export const toolFailure = (message: string): LanguageModelV3ToolResultOutput => ({
  type: "error-text",
  value: message,
});
