/** Calls that a stored answer leaves to the client: their results come with a later request, which completes that answer. */

import type {
  LanguageModelV3Message,
  LanguageModelV3ToolResultOutput,
  LanguageModelV3ToolResultPart,
} from "@ai-sdk/provider";
import type { Message } from "../../../generated/types.ts";
import { invalid, quoted } from "../../lib/errors.ts";
import type { Fields } from "../../lib/is-object.ts";
import { pushModelMessage } from "../prompt/model-input.ts";
import { afterLastAnswer, callsIn } from "../prompt/results.ts";

/** How calls have ended, by their ids: what a part of a UI message says of it. */
type Results = ReadonlyMap<string, Fields>;

/** The results after the last answer of a request. */
export interface PostedResults {
  /** Those whose calls are stored alone. */
  readonly alone: Results;
  /** Those whose calls the request has too. */
  readonly withCalls: Results;
}

/** An answer of the conversation as a client has it, with results of its own in it. */
export interface ShownAnswer {
  readonly id: string;
  readonly results: Results;
}

export type CompletedMessage = Message & Required<Pick<Message, "parts">>;

export const NO_RESULTS: PostedResults = { alone: new Map(), withCalls: new Map() };

/** Those of a request, as model messages. */
export function postedResults(messages: readonly Fields[]): PostedResults {
  const begin = afterLastAnswer(messages);
  const given = messages.slice(begin).filter(({ role }) => role === "tool");
  if (given.length === 0) return NO_RESULTS;
  const calls = new Set(messages.slice(0, begin).flatMap(callsIn));
  const alone = new Map<string, Fields>();
  const withCalls = new Map<string, Fields>();
  const prompt: LanguageModelV3Message[] = [];
  for (const message of given) pushModelMessage(prompt, message, "input");
  for (const { toolCallId, output } of prompt.flatMap(
    ({ content }) => content as readonly LanguageModelV3ToolResultPart[],
  ))
    (calls.has(toolCallId) ? withCalls : alone).set(toolCallId, outcome(output));
  return { alone, withCalls };
}

/** Of a UI message that ends with calls: answers that go on after their calls are stored as they are. */
export function shownAnswer({ id, role, parts }: Fields): ShownAnswer | null {
  if (role !== "assistant" || typeof id !== "string" || !Array.isArray(parts)) return null;
  if (typeof parts.at(-1)?.toolCallId !== "string") return null;
  const results = new Map<string, Fields>();
  for (const { toolCallId, state, output, errorText } of parts as Fields[]) {
    if (state === "output-available") results.set(toolCallId as string, { state, output });
    else if (state === "output-error") results.set(toolCallId as string, { state, errorText });
  }
  return results.size === 0 ? null : { id, results };
}

/** @throws ServiceError `invalid_input` for a result whose call is not open in the last answer, or has been answered */
export function requireOpen(messages: readonly Message[], results: Results): void {
  if (results.size === 0) return;
  const open = new Set(lastAnswer(messages)?.parts?.map(openCall));
  for (const id of results.keys())
    if (!open.has(id)) throw invalid(`input: the call ${quoted(id)} is not open in the conversation`);
}

/** The last answer with the results put into its open calls; null when none of them is open there. */
export function completed(messages: readonly Message[], results: Results): CompletedMessage | null {
  if (results.size === 0) return null;
  const message = lastAnswer(messages);
  let changed = false;
  const parts = message?.parts?.map((part) => {
    const result = results.get(openCall(part) ?? "");
    if (result === undefined) return part;
    changed = true;
    return { ...part, ...result };
  });
  return changed ? ({ ...message, parts } as CompletedMessage) : null;
}

const lastAnswer = (messages: readonly Message[]) => messages.findLast(({ role }) => role === "assistant");

/** The id of a call that has no result yet. */
function openCall(part: object): string | null {
  const { state, toolCallId } = part as Fields;
  return state === "input-available" && typeof toolCallId === "string" ? toolCallId : null;
}

/** A result as a part of a UI message has it. */
function outcome(output: LanguageModelV3ToolResultOutput): Fields {
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
