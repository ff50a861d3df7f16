/** Conversations, messages, working memory and search. */
import { defaults } from "../../../generated/defaults.ts";
import type { Service } from "../../app/service.ts";
import { type Context, type Route, typedRoute } from "../../http/route.ts";
import { actingUser, requiredUser } from "../../identity/acting-user.ts";
import { principalOf } from "../../identity/principal.ts";
import { invalid } from "../../lib/errors.ts";
import { type ChosenMemory, namedMemory } from "../../memory/choose.ts";
import { conversationIdOf, listQuery, messageQuery, saveEntries } from "../../memory/input.ts";
import { deleteConversationAndThreads } from "./delete-conversation.ts";

/** Chooses the memory of a request by its `agentId`. */
type Choose = (service: Service, agentId: string | undefined) => ChosenMemory;

const memoryOfAgent: Choose = (service, agentId) => service.chooseMemory(agentId);

/** For custom routes: chooses the memory by its name in the manifest. */
export const memoryNamed: Choose = (service, name) =>
  name === undefined ? service.chooseMemory(undefined) : namedMemory(service.manifest, service.memories, name);

/** Removes the keys whose values are undefined. */
function given<T extends object>(values: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  const kept: Record<string, unknown> = {};
  for (const key in values) if (values[key] !== undefined) kept[key] = values[key];
  return kept as { [K in keyof T]?: Exclude<T[K], undefined> };
}

export function memoryRoutes(choose: Choose): Route<Service>[] {
  /** The memory of a request, as its caller sees it. */
  function open(call: Context<Service>, agentId: string | undefined) {
    const { service } = call;
    const { memory, resourceId } = choose(service, agentId);
    const principal = principalOf(call, service.isolated);
    return { memory, access: memory.for(principal), principal, resourceId };
  }

  return [
    typedRoute<Service, "ConversationsQuery">({
      operation: "memory.listConversations",
      method: "GET",
      path: "/api/memory/conversations",
      group: "execution",
      summary: "List conversations",
      query: "ConversationsQuery",
      failures: ["not_found"],
      output: { json: "ConversationList" },
      handle({ query }, call) {
        return open(call, query.agentId).access.list(listQuery(query));
      },
    }),
    typedRoute<Service, "MemoryQuery", "CreateConversationRequest">({
      operation: "memory.createConversation",
      method: "POST",
      path: "/api/memory/conversations",
      group: "execution",
      summary: "Create a conversation",
      query: "MemoryQuery",
      body: "CreateConversationRequest",
      idempotent: true,
      failures: ["not_found", "conflict"],
      output: { json: "ConversationReply", status: 201 },
      async handle({ query, body }, call) {
        const { access, principal, resourceId } = open(call, body.agentId ?? query.agentId);
        const conversation = await access.create({
          userId: requiredUser(principal, body.userId),
          resourceId: body.resourceId ?? resourceId,
          ...given({ id: body.conversationId, title: body.title, metadata: body.metadata }),
        });
        return { conversation };
      },
    }),
    typedRoute<Service, "ConversationQuery">({
      operation: "memory.getConversation",
      method: "GET",
      path: "/api/memory/conversations/:conversationId",
      group: "execution",
      summary: "Get a conversation",
      query: "ConversationQuery",
      output: { json: "ConversationReply" },
      async handle({ params, query }, call) {
        const id = conversationIdOf(params);
        return { conversation: await open(call, query.agentId).access.get(id, query.userId) };
      },
    }),
    typedRoute<Service, "ConversationQuery", "UpdateConversationRequest">({
      operation: "memory.updateConversation",
      method: "PATCH",
      path: "/api/memory/conversations/:conversationId",
      group: "execution",
      summary: "Update a conversation",
      query: "ConversationQuery",
      body: "UpdateConversationRequest",
      output: { json: "ConversationReply" },
      async handle({ params, query, body }, call) {
        const id = conversationIdOf(params);
        const { title, metadata } = body;
        if (title === undefined && metadata === undefined) throw invalid("title or metadata is required");
        const { access } = open(call, body.agentId ?? query.agentId);
        return { conversation: await access.update(id, given({ title, metadata }), query.userId) };
      },
    }),
    typedRoute<Service, "ConversationQuery">({
      operation: "memory.deleteConversation",
      method: "DELETE",
      path: "/api/memory/conversations/:conversationId",
      group: "execution",
      summary: "Delete a conversation with its messages, its working memory and the threads of sub-agents",
      query: "ConversationQuery",
      output: { json: "DeletedConversation" },
      async handle({ params, query }, call) {
        const { memory, principal } = open(call, query.agentId);
        await deleteConversationAndThreads(call.service, memory, principal, conversationIdOf(params), query.userId);
        return { deleted: true };
      },
    }),
    typedRoute<Service, "ConversationQuery", "CloneConversationRequest">({
      operation: "memory.cloneConversation",
      method: "POST",
      path: "/api/memory/conversations/:conversationId/clone",
      group: "execution",
      summary: "Clone a conversation",
      query: "ConversationQuery",
      body: "CloneConversationRequest",
      idempotent: true,
      bodyOptional: true,
      failures: ["conflict"],
      output: { json: "ClonedConversation", status: 201 },
      handle({ params, query, body }, call) {
        const id = conversationIdOf(params);
        const {
          newConversationId,
          title,
          metadata,
          resourceId,
          includeMessages = defaults.CloneConversationRequest.includeMessages,
        } = body;
        const { access } = open(call, body.agentId ?? query.agentId);
        const wanted = {
          ...given({ newConversationId, title, metadata, resourceId }),
          includeMessages,
          charge: call.charge,
        };
        return access.clone(id, wanted, query.userId);
      },
    }),
    typedRoute<Service, "MessagesQuery">({
      operation: "memory.listMessages",
      method: "GET",
      path: "/api/memory/conversations/:conversationId/messages",
      group: "execution",
      summary: "Get the newest messages of a conversation, in order",
      query: "MessagesQuery",
      output: { json: "MessageList" },
      handle({ params, query }, call) {
        const id = conversationIdOf(params);
        return open(call, query.agentId).access.messages(id, messageQuery(query));
      },
    }),
    typedRoute<Service, "MemoryQuery", "SaveMessagesRequest">({
      operation: "memory.saveMessages",
      method: "POST",
      path: "/api/memory/save-messages",
      group: "execution",
      summary: "Save messages, all of them or none",
      query: "MemoryQuery",
      body: "SaveMessagesRequest",
      idempotent: true,
      failures: ["not_found"],
      output: { json: "SavedMessages" },
      async handle({ query, body }, call) {
        const { access, principal } = open(call, body.agentId ?? query.agentId);
        return { saved: await access.save(saveEntries(body, principal)) };
      },
    }),
    typedRoute<Service, "MemoryQuery", "DeleteMessagesRequest">({
      operation: "memory.deleteMessages",
      method: "POST",
      path: "/api/memory/messages/delete",
      group: "execution",
      summary: "Delete messages of a conversation",
      query: "MemoryQuery",
      body: "DeleteMessagesRequest",
      failures: ["not_found"],
      output: { json: "DeletedMessages" },
      async handle({ query, body }, call) {
        const { memory, access, principal } = open(call, body.agentId ?? query.agentId);
        const user = requiredUser(principal, body.userId);
        const { conversationId: conversation, messageIds } = body;
        await call.service.turns.queue.drop({ memory: memory.name, conversation, user }, messageIds);
        return { deleted: await access.deleteMessages(conversation, messageIds, user) };
      },
    }),
    typedRoute<Service, "WorkingMemoryQuery">({
      operation: "memory.getWorkingMemory",
      method: "GET",
      path: "/api/memory/conversations/:conversationId/working-memory",
      group: "execution",
      summary: "Read working memory",
      query: "WorkingMemoryQuery",
      output: { json: "WorkingMemory" },
      handle({ params, query }, call) {
        const id = conversationIdOf(params);
        const { access, principal } = open(call, query.agentId);
        const { scope } = query;
        const userId = scope === "user" ? actingUser(principal, query.userId) : query.userId;
        if (scope === "user" && userId === undefined) throw invalid("userId is required with scope=user");
        return access.workingMemory(id, given({ scope, userId }));
      },
    }),
    typedRoute<Service, "MemoryQuery", "UpdateWorkingMemoryRequest">({
      operation: "memory.updateWorkingMemory",
      method: "POST",
      path: "/api/memory/conversations/:conversationId/working-memory",
      group: "execution",
      summary: "Replace working memory, or append to it",
      query: "MemoryQuery",
      body: "UpdateWorkingMemoryRequest",
      idempotent: true,
      output: { json: "WorkingMemoryUpdated" },
      async handle({ params, query, body }, call) {
        const id = conversationIdOf(params);
        const { access } = open(call, body.agentId ?? query.agentId);
        const { content, mode = defaults.UpdateWorkingMemoryRequest.mode, scope, userId } = body;
        await access.updateWorkingMemory(id, content, mode, given({ scope, userId }));
        return { updated: true };
      },
    }),
    typedRoute<Service, "SearchQuery">({
      operation: "memory.search",
      method: "GET",
      path: "/api/memory/search",
      group: "execution",
      summary: "Search messages by meaning",
      query: "SearchQuery",
      failures: ["not_found"],
      output: { json: "SearchResults" },
      handle({ query }, call) {
        const { access } = open(call, query.agentId);
        const { searchQuery: text, limit = defaults.SearchQuery.limit, threshold, conversationId, userId } = query;
        return access.search({ text, limit, ...given({ threshold, conversationId, userId }) });
      },
    }),
  ];
}

export const MEMORY_ROUTES = memoryRoutes(memoryOfAgent);
