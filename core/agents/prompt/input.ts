/** Reads `input` of a generation: a string, or a list in which each message is a UI message or a model message. */
import type { LanguageModelV3Message } from "@ai-sdk/provider";
import { invalid } from "../../lib/errors.ts";
import { pushModelMessage, pushUiMessage } from "./model-input.ts";

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
    if (isBlank(input)) throw invalid(`${field} must not be empty`);
    prompt.push({ role: "user", content: [{ type: "text", text: input }] });
    return prompt;
  }
  if (!Array.isArray(input)) {
    throw invalid(`${field} must be a string, an array of UI messages or an array of model messages`);
  }
  if (input.length === 0) throw invalid(`${field} must not be empty`);
  const before = prompt.length;
  for (const [index, message] of input.entries()) {
    const path = `${field}[${index}]`;
    const first = prompt.length;
    pushMessage(prompt, message, path);
    for (let at = prompt.length - 1; at >= first; at--)
      if (isEmpty(prompt[at]!)) refuseOrDrop(prompt, at, message, path);
  }
  if (prompt.length === before) throw invalid(`${field} must not be empty`);
  return prompt;
}

const isBlank = (text: string) => text.trim() === "";

/** Whether a message has only blank text. Otherwise removes the empty texts of a user's message: providers refuse both. */
function isEmpty(message: LanguageModelV3Message): boolean {
  if (message.role !== "user" && message.role !== "assistant") return false;
  const parts: readonly { type: string; text?: string }[] = message.content;
  if (parts.every((part) => part.type === "text" && isBlank(part.text!))) return true;
  if (message.role === "user")
    message.content = message.content.filter((part) => part.type !== "text" || part.text !== "");
  return false;
}

/** Refuses an empty message; drops it if a chat hook has kept a step in which the model said nothing. */
function refuseOrDrop(prompt: LanguageModelV3Message[], at: number, message: { parts?: unknown }, path: string): void {
  const isUi = Array.isArray(message.parts);
  if (!isUi || prompt[at]!.role === "user") throw invalid(`${path}.${isUi ? "parts" : "content"} must not be empty`);
  prompt.splice(at, 1);
}

export function pushMessage(prompt: LanguageModelV3Message[], message: unknown, path: string): void {
  if (typeof message !== "object" || message === null) throw invalid(`${path} must be object`);
  const fields = message as Readonly<Record<string, unknown>>;
  if (Array.isArray(fields.parts)) pushUiMessage(prompt, fields, path);
  else if (fields.content !== undefined) pushModelMessage(prompt, fields, path);
  else throw invalid(`${path} needs \`parts\` (a UI message) or \`content\` (a model message)`);
}
