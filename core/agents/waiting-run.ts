/** A run that a later one goes on with, once a person has approved or refused what its tools ask. */
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

/** Resolves to what waits, or null for a run that is over. */
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
  // A conversation has what was said before.
  if (prepared.plan.turn?.writable === true) return { approvals, input: [answer] };
  return { approvals, input: [...(isContinued ? messages.slice(0, -1) : messages), answer] };
}
