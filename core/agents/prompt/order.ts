/** Puts a prompt in an order that every provider accepts. */
import type { LanguageModelV3Message } from "@ai-sdk/provider";
import type { AssistantContent } from "./content.ts";

/** Added when the assistant speaks first: Anthropic requires a user message before every answer. */
const OPENING: LanguageModelV3Message = { role: "user", content: [{ type: "text", text: "(The assistant begins.)" }] };

/**
 * Moves system messages to the front, in their order: Anthropic and Gemini accept them nowhere else. So the client's come before the
 * conversation that was recalled.
 */
export function inAcceptedOrder(prompt: LanguageModelV3Message[]): LanguageModelV3Message[] {
  const begin = prompt.findIndex(isNotSystem);
  if (begin === -1) return prompt;
  const assistantBegins = prompt[begin]!.role === "assistant";
  const isOrdered = prompt.findLastIndex(isSystem) < begin;
  if (isOrdered && !assistantBegins) return prompt;
  const systems = prompt.filter(isSystem);
  const others = prompt.filter(isNotSystem);
  return assistantBegins ? [...systems, OPENING, ...others] : [...systems, ...others];
}

const isSystem = ({ role }: LanguageModelV3Message): boolean => role === "system";
const isNotSystem = ({ role }: LanguageModelV3Message): boolean => role !== "system";

/**
 * Removes reasoning that nothing follows, with which an interrupted answer ends, and blank text that carries nothing for the provider:
 * providers refuse both.
 */
export function withoutLooseEnds(content: AssistantContent): AssistantContent {
  const kept = content.filter(
    (part) => part.type !== "text" || /\S/.test(part.text) || part.providerOptions !== undefined,
  );
  while (kept.at(-1)?.type === "reasoning") kept.pop();
  return kept;
}
