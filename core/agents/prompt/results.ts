/** Tool results in the model messages of a request, and the calls that they belong to. */
import { invalid } from "../../lib/errors.ts";
import { type Fields, isObject } from "../../lib/is-object.ts";

type Spoken = { readonly role: unknown; readonly content: unknown };

/** Where what comes after the last answer begins: results of its calls, and what the user says, in any order. */
export const afterLastAnswer = (messages: readonly Fields[]): number =>
  messages.findLastIndex(({ role }) => role === "assistant") + 1;

/** Ids of the calls in a message. */
export function callsIn({ parts, content }: Fields): string[] {
  const list: unknown[] = Array.isArray(parts) ? parts : Array.isArray(content) ? content : [];
  return list.flatMap((part) =>
    isObject(part) && typeof part.toolCallId === "string" && part.type !== "tool-result" ? [part.toolCallId] : [],
  );
}

/**
 * Checks that every result has a call.
 *
 * @param messages checked by `buildPrompt`
 * @param end index from which the calls of results may be in the store instead
 * @throws ServiceError `invalid_input` that names the field
 */
export function requireCalls(messages: readonly Fields[], field: string, end: number): void {
  const calls = new Set(messages.flatMap(callsIn));
  for (const [index, { role, content }] of messages.slice(0, end).entries()) {
    if (role !== "tool") continue;
    for (const [position, { type, toolCallId }] of (content as readonly Fields[]).entries())
      if (type === "tool-result" && !calls.has(toolCallId as string))
        throw invalid(
          `${field}[${index}].content[${position}].toolCallId: there is no call ${JSON.stringify(toolCallId)} to which this is the result`,
        );
  }
}

/**
 * Ids of the calls without a result in the last answer, when nobody but tools has spoken since. Empty when the answer has no results
 * either: then its calls have been left alone.
 *
 * @param counts which tools do
 * @param isAnswered whether something else of the answer has been answered
 */
export function callsLeft(
  messages: readonly Spoken[],
  counts: (toolName: string) => boolean = () => true,
  isAnswered = false,
): string[] {
  if (messages.at(-1)?.role === "user") return [];
  const results = new Set<unknown>();
  const calls: Fields[] = [];
  for (let index = messages.length - 1; index >= 0; index--) {
    const { role, content } = messages[index]!;
    if (role === "system") continue;
    if (role !== "assistant" && (role !== "tool" || calls.length > 0)) break;
    for (const part of Array.isArray(content) ? (content as readonly Fields[]) : []) {
      if (part.type === "tool-result") results.add(part.toolCallId);
      else if (part.type === "tool-call" && counts(part.toolName as string)) calls.push(part);
    }
  }
  const left = calls.filter(({ toolCallId }) => !results.has(toolCallId));
  return isAnswered || left.length < calls.length ? left.map(({ toolCallId }) => toolCallId as string).reverse() : [];
}

/** @throws ServiceError `invalid_input` when a request ends with results of some calls and others have none */
export function requireAllResults(messages: readonly Spoken[], field: string): void {
  const [id] = callsLeft(messages);
  if (id !== undefined)
    throw invalid(
      `${field}: the call ${JSON.stringify(id.slice(0, MAX_NAMED_ID))} has no output: send those of all calls`,
    );
}

/** Of an id in an error: clients choose how long they are. */
const MAX_NAMED_ID = 128;
