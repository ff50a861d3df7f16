/** Reads `input` of a generation: a string, or a list in which each message is a UI message or a model message. */
import type { LanguageModelV3Message } from "@ai-sdk/provider";
import { invalid } from "../../lib/errors.ts";
import { pushModelMessage } from "./model-input.ts";
import { pushUiMessage } from "./ui-input.ts";

/**
 * Builds the prompt for a model: the agent's instructions, then the input.
 *
 * @param field the name of the input in the request (`input`, `messages`), for messages.
 * @throws ServiceError `invalid_input` that names the field.
 */
export function buildPrompt(instructions: string, input: unknown, field = "input"): LanguageModelV3Message[] {
  const prompt: LanguageModelV3Message[] = [];
  if (instructions !== "") prompt.push({ role: "system", content: instructions });
  if (typeof input === "string") {
    prompt.push({ role: "user", content: [{ type: "text", text: input }] });
    return prompt;
  }
  if (!Array.isArray(input)) {
    throw invalid(`${field} must be a string, an array of UI messages or an array of model messages`);
  }
  if (input.length === 0) throw invalid(`${field} must not be empty`);
  for (const [index, message] of input.entries()) pushMessage(prompt, message, `${field}[${index}]`);
  return prompt;
}

export function pushMessage(prompt: LanguageModelV3Message[], message: unknown, path: string): void {
  if (typeof message !== "object" || message === null) throw invalid(`${path} must be object`);
  const fields = message as Readonly<Record<string, unknown>>;
  if (Array.isArray(fields.parts)) pushUiMessage(prompt, fields, path);
  else if (fields.content !== undefined) pushModelMessage(prompt, fields, path);
  else throw invalid(`${path} needs \`parts\` (a UI message) or \`content\` (a model message)`);
}
