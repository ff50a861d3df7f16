/** What agents remember, agent by agent, as consoles ask for it: those in whose memories one principal may look. */
import { defaults } from "../../generated/defaults.ts";
import type {
  AgentConversationsQuery,
  AgentMessagesQuery,
  AgentWorkingMemory,
  AgentWorkingMemoryQuery,
  Conversation,
  MemoryUserList,
  MemoryUsersQuery,
} from "../../generated/types.ts";
import { conversationNotFound, type Principal, permittedUser } from "../identity/principal.ts";
import { invalid, notFound, unlessNotFound } from "../lib/errors.ts";
import type { Serialized } from "../lib/serialized.ts";
import type { Manifest } from "../manifest/manifest.ts";
import type { Store } from "../storage/store.ts";
import { listConversations, usersOf } from "./conversations/list.ts";
import { listQuery, messageQuery } from "./input.ts";
import type { Memory, MemoryAccess } from "./scoped.ts";

interface Place {
  readonly agentId: string;
  readonly agentName: string;
  readonly memory: Memory;
  readonly access: MemoryAccess;
}

/** The JSON text of a conversation, with its agent. */
const withAgent = (conversation: string, { agentId, agentName }: Place): string =>
  `${conversation.slice(0, -1)},${JSON.stringify({ agentId, agentName }).slice(1)}`;

/** @param only the one agent that is meant; default: all with a memory */
export function agentMemories(
  { manifest, memories, store }: { manifest: Manifest; memories: ReadonlyMap<string, Memory>; store: Store },
  principal: Principal,
  only: string | undefined,
) {
  const places = Object.entries(manifest.agents).flatMap(([agentId, { name: agentName, memory: name }]): Place[] => {
    const memory = name === false || (only ?? agentId) !== agentId ? undefined : memories.get(name);
    return memory === undefined ? [] : [{ agentId, agentName, memory, access: memory.for(principal) }];
  });
  return {
    /** Those who have conversations, who spoke last first. */
    async users(query: MemoryUsersQuery): Promise<MemoryUserList> {
      const { limit, offset, search = "" } = { ...defaults.MemoryUsersQuery, ...query };
      const owner = permittedUser(principal, undefined);
      const found = new Map<string, MemoryUserList["users"][number]>();
      for (const { agentId, agentName, memory } of places) {
        const place = { memory: memory.name, resourceId: agentId };
        for (const [userId, { count, last }] of await usersOf(store, place, owner)) {
          const lastInteractionAt = new Date(last).toISOString();
          const user = found.get(userId) ?? { userId, conversationCount: 0, agents: [], lastInteractionAt };
          found.set(userId, user);
          user.conversationCount += count;
          user.agents.push({ agentId, agentName, conversationCount: count, lastInteractionAt });
          if (lastInteractionAt > user.lastInteractionAt) user.lastInteractionAt = lastInteractionAt;
        }
      }
      const users = [...found.values()]
        .filter(({ userId }) => userId.toLowerCase().includes(search.toLowerCase()))
        .sort((a, b) => (a.lastInteractionAt < b.lastInteractionAt ? 1 : -1));
      return { users: users.slice(offset, offset + limit), total: users.length, limit, offset };
    },

    conversations(query: AgentConversationsQuery): Promise<Serialized> {
      const userId = permittedUser(principal, query.userId);
      const listed = places.map(({ agentId, memory }) => ({ memory: memory.name, resourceId: agentId }));
      return listConversations(store, listed, { ...listQuery(query), userId }, (text, resourceId) =>
        withAgent(text, places.find(({ agentId }) => agentId === resourceId)!),
      );
    },

    /** @throws ServiceError `not_found` when none of the agents has that conversation */
    async messages(id: string, query: AgentMessagesQuery): Promise<Serialized> {
      for (const place of places) {
        const found = await unlessNotFound(
          place.access.messages(id, messageQuery(query), (text) => {
            const { resourceId } = JSON.parse(text) as Conversation;
            const own = places.find(({ agentId, memory }) => agentId === resourceId && memory === place.memory);
            return withAgent(text, own ?? place);
          }),
        );
        if (found !== undefined) return found;
      }
      throw conversationNotFound(id);
    },

    /** @throws ServiceError `not_found` when none of the agents has a note with that scope about the conversation */
    async workingMemory({ scope, conversationId, userId }: AgentWorkingMemoryQuery): Promise<AgentWorkingMemory> {
      const named = scope === "user" ? permittedUser(principal, userId) : conversationId;
      if (named === undefined) throw invalid(`${scope}Id is required with scope=${scope}`);
      const notes: AgentWorkingMemory[] = [];
      for (const { agentId, agentName, access, memory } of places) {
        if (memory.settings.workingMemory?.scope !== scope) continue;
        const note = await (scope === "user"
          ? access.workingMemoryIfAny({ id: "", userId: named })
          : unlessNotFound(access.workingMemory(named, { userId })));
        if (note) notes.push({ agentId, agentName, ...note });
      }
      const found = notes.find(({ content }) => content !== null) ?? notes[0];
      if (found !== undefined) return found;
      if (scope === "user")
        return { agentId: null, agentName: null, scope, content: null, format: null, template: null };
      throw notFound("no agent has such a working memory");
    },
  };
}
