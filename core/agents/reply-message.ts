/** The id of the message that a run answers with. */
import { messageIdForRun } from "./conversation/agent-memory.ts";
import type { PreparedRun } from "./run/execute.ts";

/** A reply that continues the last assistant message keeps the id of that message. */
export function replyMessageId({ input, plan }: PreparedRun): string {
  const last = Array.isArray(input) ? (input.at(-1) as { role?: unknown; id?: unknown }) : undefined;
  return last?.role === "assistant" && typeof last.id === "string" ? last.id : messageIdForRun(plan.id);
}
