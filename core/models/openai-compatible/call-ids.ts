/** Converts ids of tool calls to Mistral's format. Its own ids have it; others are in conversations that another model started. */
import { createHash } from "node:crypto";
import type { Complaint } from "./parameters.ts";
import type { Body } from "./request-body.ts";

const SHORT = /^[a-zA-Z0-9]{9}$/;
const COMPLAINT = /tool call id .{1,200} must be .{1,80} length of 9/i;

/** Changes the body. Equal ids stay equal in every call, so that results still belong to their calls. */
export function shortenCallIds(body: Body): void {
  body.messages = body.messages.map((message) => {
    const { tool_calls: calls, tool_call_id: id } = message;
    if (typeof id === "string") return { ...message, tool_call_id: shortened(id) };
    if (!Array.isArray(calls)) return message;
    return { ...message, tool_calls: calls.map((call) => ({ ...call, id: shortened(call.id) })) };
  });
}

/** Whether the provider has refused the format of the ids, and the body contains ids in another format. */
export function refusesCallIds({ words }: Complaint, { messages }: Body): boolean {
  if (!COMPLAINT.test(words)) return false;
  return messages.some(({ tool_call_id: id }) => typeof id === "string" && !SHORT.test(id));
}

const shortened = (id: string): string =>
  SHORT.test(id) ? id : createHash("sha256").update(id).digest("hex").slice(0, 9);
