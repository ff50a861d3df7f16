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
  await withoutWork(service, memory.name, principal, { id, user }, async (wasAtWork) => {
    if (found === undefined && !wasAtWork) throw conversationNotFound(id);
    // Threads first, so that a client that sees a failure and tries again deletes everything.
    for (const { id: threadId, memory: name } of threadsOf(manifest, memory, id)) {
      const own = memories.get(name)!.for(principal);
      await withoutWork(service, name, principal, { id: threadId, user }, () =>
        unlessNotFound(own.delete(threadId, user)),
      );
    }
    const deleted = memory.for(principal).delete(id, named);
    await (wasAtWork ? unlessNotFound(deleted) : deleted);
  });
}

/** Cancels what is at work on a conversation, and lets nothing begin there meanwhile. @param work is told whether anything was at work */
async function withoutWork(
  { manifest, runs, turns }: Service,
  memory: string,
  principal: Principal,
  { id, user }: { id: string; user: string },
  work: (wasAtWork: boolean) => Promise<unknown>,
): Promise<void> {
  const place = { memory, conversation: id, user };
  const elsewhere = await turns.queue.runElsewhere(place);
  const agents = Object.entries(manifest.agents).filter(([, agent]) => agent.memory === memory);
  const scoped = runs.for(principal);
  const ran = await Promise.all(agents.map(([agentId]) => scoped.cancelAll(agentId, id, user, elsewhere)));
  const wasAtWork = elsewhere !== null || ran.includes(true);
  await turns.queue.whileDeleting(place, (wereTurns) => work(wereTurns || wasAtWork));
}
