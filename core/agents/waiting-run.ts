/** A run that a later one continues, once a person has approved or refused the calls of its tools. */
import type { GenerateBody, RunCall, WaitingRun } from "./agent.ts";
import { replyMessageId } from "./conversation/agent-memory.ts";
import { TurnMessage } from "./conversation/turn-message.ts";
import type { CompiledAgent } from "./run/compiled-agent.ts";
import { execute, prepareRun } from "./run/execute.ts";
import type { PartSink } from "./run/parts.ts";

interface UiMessage {
  readonly role?: unknown;
  readonly parts?: readonly unknown[];
}

/** Resolves to what waits, or null when the run has ended. */
export async function runOrWait(
  agent: CompiledAgent,
  { input, options }: GenerateBody,
  call: RunCall,
  sink: PartSink,
): Promise<WaitingRun | null> {
  const messages = input as readonly UiMessage[];
  const last = messages.at(-1);
  const isContinued = last?.role === "assistant";
  const prepared = prepareRun(agent, { input, options, approves: true, clientKnowsMessageId: true }, call);
  const message = new TurnMessage(sink, isContinued ? (last.parts ?? []) : [], () => {});
  const { approvals } = await execute(agent, prepared, message);
  if (approvals.length === 0) return null;
  const answer = { id: replyMessageId(input, prepared.plan.id), role: "assistant", parts: message.parts("completed") };
  // With a conversation, the earlier messages are stored already.
  if (prepared.plan.turn?.writable === true) return { approvals, input: [answer] };
  return { approvals, input: [...(isContinued ? messages.slice(0, -1) : messages), answer] };
}
