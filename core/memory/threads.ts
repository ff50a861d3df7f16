/** Threads: the memory of sub-agents about a conversation, each in a separate conversation with a derived id. */
import type { Principal } from "../identity/principal.ts";
import { ServiceError } from "../lib/errors.ts";
import type { Manifest } from "../manifest/manifest.ts";
import type { Memory } from "./memory.ts";

/** The id of a thread. The agent's id has its colons replaced, so that the last part of the id identifies one thread. */
export const threadId = (conversationId: string, agentId: string): string =>
  `${conversationId}:${agentId.replaceAll(":", "%3A")}`;

interface Memories {
  readonly manifest: Manifest;
  /** Memories by name. */
  readonly memories: ReadonlyMap<string, Memory>;
}

/** Deletes the threads of a conversation: of every agent to which one with this memory may delegate, even indirectly. */
export async function deleteThreads(
  { manifest, memories }: Memories,
  memory: Memory,
  principal: Principal,
  conversation: { readonly id: string; readonly userId: string },
): Promise<void> {
  for (const agentId of subAgentsOf(manifest, memory.name)) {
    const { memory: name } = manifest.agents[agentId]!;
    const access = name === false ? undefined : memories.get(name)?.for(principal);
    try {
      await access?.delete(threadId(conversation.id, agentId), conversation.userId);
    } catch (error) {
      // The agent was never called in this conversation.
      if (!(error instanceof ServiceError) || error.kind !== "not_found") throw error;
    }
  }
}

function subAgentsOf({ agents }: Manifest, memory: string): Set<string> {
  const found = new Set<string>();
  const add = (id: string): void => {
    for (const subAgent of agents[id]?.subAgents ?? []) {
      if (found.has(subAgent)) continue;
      found.add(subAgent);
      add(subAgent);
    }
  };
  for (const [id, agent] of Object.entries(agents)) if (agent.memory === memory) add(id);
  return found;
}
