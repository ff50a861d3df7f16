/**
 * Rewrites answers of another provider's model in a form that every model accepts. Providers sign the reasoning and calls of their own
 * models, and some refuse unsigned calls while the turn to which the calls belong continues.
 */
import type { LanguageModelV3Message, LanguageModelV3ToolResultOutput } from "@ai-sdk/provider";
import type { AssistantContent, ToolContent, UserContent } from "./content.ts";

type Message = LanguageModelV3Message;
type Call = Extract<AssistantContent[number], { type: "tool-call" }>;

/**
 * The prompt without reasoning, signatures and calls that providers have run themselves; calls of the current turn become text, or
 * where there is nothing of this all calls: some providers want back the thoughts of earlier turns too. Null without any of these.
 */
export const plainPrompt = (prompt: readonly Message[]): Message[] | null =>
  plainSince(prompt, beginOfTurn(prompt)) ?? plainSince(prompt, -1);

function plainSince(prompt: readonly Message[], spoken: number): Message[] | null {
  const calls = new Map<string, Call>();
  let changed = false;
  const plain = prompt.flatMap((message, index): Message[] => {
    const current = index > spoken;
    if (message.role === "tool" && current) {
      changed = true;
      return [{ role: "user", content: message.content.flatMap((part) => resultText(part, calls)) }];
    }
    if (message.role !== "assistant") return [message];
    const content = message.content.flatMap((part): AssistantContent => {
      if (part.type === "tool-call") calls.set(part.toolCallId, part);
      if (isOfProvider(part) || (current && part.type === "tool-call")) return [];
      const { providerOptions, ...rest } = part;
      return [providerOptions === undefined ? part : (rest as typeof part)];
    });
    if (content.length === message.content.length && content.every((part, at) => part === message.content[at]))
      return [message];
    changed = true;
    return content.length === 0 ? [] : [{ role: "assistant", content }];
  });
  return changed ? plain : null;
}

/** The index of the user's message that the turn answers: what the user says right behind results is one message with them for Anthropic. */
function beginOfTurn(prompt: readonly Message[]): number {
  let before: Message["role"] = "system";
  let begin = -1;
  for (const [index, { role }] of prompt.entries()) {
    if (role === "user" && before !== "tool") begin = index;
    if (role !== "user") before = role;
  }
  return begin;
}

/** Whether a part is reasoning, or a call that the provider has run: other providers refuse both. */
const isOfProvider = (part: AssistantContent[number]): boolean =>
  part.type === "reasoning" ||
  part.type === "tool-result" ||
  (part.type === "tool-call" && part.providerExecuted === true);

/** A tool result as words of the user. If they were the assistant's, models would imitate them instead of calling tools. */
function resultText(part: ToolContent[number], calls: ReadonlyMap<string, Call>): UserContent {
  if (part.type !== "tool-result") return [];
  const input = JSON.stringify(calls.get(part.toolCallId)?.input ?? {});
  const text = `(The result of your call of the tool ${part.toolName} with ${input}. It is not said by the user.)\n${outputText(part.output)}`;
  return [{ type: "text", text }];
}

function outputText(output: LanguageModelV3ToolResultOutput): string {
  switch (output.type) {
    case "execution-denied":
      return output.reason ?? "The call was denied.";
    case "content":
      return output.value.map((item) => (item.type === "text" ? item.text : "(a file)")).join("\n");
    default:
      return typeof output.value === "string" ? output.value : JSON.stringify(output.value);
  }
}
