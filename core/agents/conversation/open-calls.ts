/** Calls that a stored answer leaves to the client: their results come with a later request, which completes that answer. */
import type { LanguageModelV3Message, LanguageModelV3ToolResultOutput } from "@ai-sdk/provider";
import type { Message } from "../../../generated/types.ts";
import { invalid } from "../../lib/errors.ts";
import { isObject } from "../../lib/is-object.ts";
import { pushModelMessage } from "../prompt/model-input.ts";

type Fields = Readonly<Record<string, unknown>>;
/** By the id of the call. */
export type PostedResults = ReadonlyMap<string, LanguageModelV3ToolResultOutput>;

export type CompletedMessage = Message & Required<Pick<Message, "parts">>;

/** Of an id in an error: clients choose how long they are. */
const MAX_NAMED_ID = 128;

export const NO_RESULTS: PostedResults = new Map();

/** The results at the end of a request, as model messages, whose calls are not in the request itself. */
export function postedResults(messages: readonly Fields[]): PostedResults {
  let begin = messages.length;
  while (begin > 0 && messages[begin - 1]!.role === "tool") begin--;
  if (begin === messages.length) return NO_RESULTS;
  const results = new Map<string, LanguageModelV3ToolResultOutput>();
  const prompt: LanguageModelV3Message[] = [];
  for (const message of messages.slice(begin)) pushModelMessage(prompt, message, "input");
  for (const { content } of prompt)
    for (const part of content as Exclude<LanguageModelV3Message["content"], string>)
      if (part.type === "tool-result") results.set(part.toolCallId, part.output);
  for (const { content } of messages.slice(0, begin))
    for (const part of Array.isArray(content) ? content : [])
      if (isObject(part) && part.type === "tool-call") results.delete(part.toolCallId as string);
  return results;
}

/**
 * Puts the results into the stored message that has the calls.
 *
 * @returns all messages, and the one that the run continues
 * @throws ServiceError `invalid_input` for a result whose call is not there, or has been answered
 */
export function completeCalls(
  messages: readonly Message[],
  results: PostedResults,
): { messages: readonly Message[]; continued: CompletedMessage | null } {
  if (results.size === 0) return { messages, continued: null };
  const index = messages.findLastIndex(({ role }) => role === "assistant");
  const open = new Set(messages[index]?.parts?.map(openCall));
  for (const id of results.keys())
    if (!open.has(id))
      throw invalid(`input: the call ${JSON.stringify(id.slice(0, MAX_NAMED_ID))} is not open in the conversation`);
  const { parts = [], ...message } = messages[index]!;
  const completed = parts.map((part) => {
    const result = results.get(openCall(part) ?? "");
    return result === undefined ? part : { ...part, ...answer(result) };
  });
  const continued = { ...message, parts: completed };
  return { messages: messages.with(index, continued), continued };
}

/** The id of a call that has no result yet. */
function openCall(part: object): string | null {
  const { state, toolCallId } = part as Fields;
  return state === "input-available" && typeof toolCallId === "string" ? toolCallId : null;
}

/** A result as a part of a UI message has it. */
function answer(output: LanguageModelV3ToolResultOutput): Fields {
  switch (output.type) {
    case "error-text":
      return { state: "output-error", errorText: output.value };
    case "error-json":
      return { state: "output-error", errorText: JSON.stringify(output.value) };
    case "execution-denied":
      return { state: "output-error", errorText: output.reason ?? "The call was denied." };
    default:
      return { state: "output-available", output: output.value };
  }
}

/** Removes results from the end of the prompt that have become a part of a stored message. */
export function dropResults(prompt: LanguageModelV3Message[], results: PostedResults): void {
  if (results.size === 0) return;
  for (let index = prompt.length - 1; index >= 0; index--) {
    const message = prompt[index]!;
    if (message.role !== "tool") return;
    const content = message.content.filter((part) => part.type !== "tool-result" || !results.has(part.toolCallId));
    if (content.length === 0) prompt.splice(index, 1);
    else prompt[index] = { ...message, content };
  }
}
