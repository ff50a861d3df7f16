/** Threads: the memory of sub-agents about a conversation, each in a separate conversation with a derived id. */
import type { Manifest } from "../manifest/manifest.ts";
import type { Memory } from "./scoped.ts";

/** The id of a thread. The agent's id has its colons replaced, so that the last part of the id identifies one thread. */
export const threadId = (conversationId: string, agentId: string): string =>
  `${conversationId}:${agentId.replaceAll(":", "%3A")}`;

/** The threads that a conversation may have: of every agent to which one with its memory may delegate, even indirectly. */
export function threadsOf(
  manifest: Manifest,
  memory: Memory,
  conversationId: string,
): { readonly id: string; readonly memory: string }[] {
  return [...subAgentsOf(manifest, memory.name)].flatMap((agentId) => {
    const { memory: name } = manifest.agents[agentId]!;
    return name === false ? [] : [{ id: threadId(conversationId, agentId), memory: name }];
  });
}

/** Those to which an agent with this memory may delegate, even indirectly. */
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
