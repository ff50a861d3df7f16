/** Ids of tool calls as Mistral takes them. Its own are like that; others are in a conversation that another model began. */
import { createHash } from "node:crypto";
import type { Complaint } from "./parameters.ts";
import type { Body } from "./request-body.ts";

const SHORT = /^[a-zA-Z0-9]{9}$/;
const COMPLAINT = /tool call id .{1,200} must be .{1,80} length of 9/i;

/** Changes the body. One id becomes the same one in every call, so that results stay with their calls. */
export function shortenCallIds(body: Body): void {
  body.messages = body.messages.map((message) => {
    const { tool_calls: calls, tool_call_id: id } = message;
    if (typeof id === "string") return { ...message, tool_call_id: shortened(id) };
    if (!Array.isArray(calls)) return message;
    return { ...message, tool_calls: calls.map((call) => ({ ...call, id: shortened(call.id) })) };
  });
}

/** Whether the provider minds the ids of a body that has other ones. */
export function refusesCallIds({ words }: Complaint, { messages }: Body): boolean {
  if (!COMPLAINT.test(words)) return false;
  return messages.some(({ tool_call_id: id }) => typeof id === "string" && !SHORT.test(id));
}

const shortened = (id: string): string =>
  SHORT.test(id) ? id : createHash("sha256").update(id).digest("hex").slice(0, 9);
