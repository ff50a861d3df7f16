/** Tool results in the model messages of a request, and the calls that they belong to. */
import { invalid } from "../../lib/errors.ts";
import { type Fields, isObject } from "../../lib/is-object.ts";

/** The index of the first of the tool messages at the end of the request; the length of the list when it ends in anything else. */
export function beginOfResults(messages: readonly Fields[]): number {
  let begin = messages.length;
  for (let index = begin - 1; index >= 0; index--) {
    const { role } = messages[index]!;
    if (role === "tool") begin = index;
    else if (role !== "system") break;
  }
  return begin;
}

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
