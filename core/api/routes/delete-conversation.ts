/** Deletes a conversation with its threads. What is at work on it is cancelled first, and writes none of it again. */
import type { Service } from "../../app/service.ts";
import { actingUser } from "../../identity/acting-user.ts";
import { ANONYMOUS, conversationNotFound } from "../../identity/ownership.ts";
import type { Principal } from "../../identity/principal.ts";
import { unlessNotFound } from "../../lib/errors.ts";
import type { Memory } from "../../memory/memory.ts";
import { threadsOf } from "../../memory/threads.ts";

/**
 * @param named user whose conversation is meant
 * @throws ServiceError `not_found` when there is none, and no answer is under way that would begin it
 */
export async function deleteConversationAndThreads(
  service: Service,
  memory: Memory,
  principal: Principal,
  id: string,
  named: string | undefined,
): Promise<void> {
  const { manifest, memories } = service;
  const found = await unlessNotFound(memory.for(principal).get(id, named));
  const user = found?.userId ?? actingUser(principal, named) ?? ANONYMOUS;
  const wasAtWork = await cancelWork(service, memory.name, principal, { id, user });
  if (found === undefined && !wasAtWork) throw conversationNotFound(id);
  // Threads first, so that a client that sees a failure and tries again deletes everything.
  for (const thread of threadsOf(manifest, memory, id)) {
    await cancelWork(service, thread.memory, principal, { id: thread.id, user });
    await unlessNotFound(memories.get(thread.memory)!.for(principal).delete(thread.id, user));
  }
  const deleted = memory.for(principal).delete(id, named);
  await (wasAtWork ? unlessNotFound(deleted) : deleted);
}

/** @returns whether anything was at work */
async function cancelWork(
  { manifest, runs, turns }: Service,
  memory: string,
  principal: Principal,
  { id, user }: { id: string; user: string },
): Promise<boolean> {
  const agents = Object.entries(manifest.agents).filter(([, agent]) => agent.memory === memory);
  const scoped = runs.for(principal);
  const ran = await Promise.all(agents.map(([agentId]) => scoped.cancelAll(agentId, id, user)));
  const wasTurn = await turns.queue.withdraw({ memory, conversation: id, user });
  return wasTurn || ran.includes(true);
}
