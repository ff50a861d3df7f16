/** Conversations, messages, working memory and search. */
import { defaults } from "../../../generated/defaults.ts";
import type { Service } from "../../app/service.ts";
import type { Context, Route } from "../../http/route.ts";
import {
  ANONYMOUS,
  actingUser,
  conversationNotFound,
  type Principal,
  principalOf,
  requiredUser,
} from "../../identity/principal.ts";
import { invalid, unlessNotFound } from "../../lib/errors.ts";
import { type ChosenMemory, namedMemory } from "../../memory/choose.ts";
import { conversationIdOf, listQuery, messageQuery, saveEntries } from "../../memory/input.ts";
import type { Memory } from "../../memory/scoped.ts";
import { threadsOf } from "../../memory/threads.ts";
import { del, get, patch, post } from "./row.ts";

/** Chooses the memory of a request by its `agentId`. */
type Choose = (service: Service, agentId: string | undefined) => ChosenMemory;

/** For custom routes: chooses the memory by its name in the manifest. */
export const memoryNamed: Choose = (service, name) =>
  name === undefined ? service.chooseMemory(undefined) : namedMemory(service.manifest, service.memories, name);

export function memoryRoutes(choose: Choose): Route<Service>[] {
  /** The memory of a request, as its caller sees it. */
  function open(call: Context<Service>, agentId: string | undefined) {
    const { service } = call;
    const { memory, resourceId } = choose(service, agentId);
    const principal = principalOf(call, service.isolated);
    return { memory, access: memory.for(principal), principal, resourceId };
  }

  return [
    get("/api/memory/conversations", "memory.listConversations", "List conversations", {
      query: "ConversationsQuery",
      failures: ["not_found"],
      output: "ConversationList",
      handle({ query }, call) {
        return open(call, query.agentId).access.list(listQuery(query));
      },
    }),
    post("/api/memory/conversations", "memory.createConversation", "Create a conversation", {
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
          id: body.conversationId,
          title: body.title,
          metadata: body.metadata,
        });
        return { conversation };
      },
    }),
    get("/api/memory/conversations/:conversationId", "memory.getConversation", "Get a conversation", {
      query: "ConversationQuery",
      output: "ConversationReply",
      async handle({ params, query }, call) {
        const id = conversationIdOf(params);
        return { conversation: await open(call, query.agentId).access.get(id, query.userId) };
      },
    }),
    patch("/api/memory/conversations/:conversationId", "memory.updateConversation", "Update a conversation", {
      query: "ConversationQuery",
      body: "UpdateConversationRequest",
      output: "ConversationReply",
      async handle({ params, query, body }, call) {
        const id = conversationIdOf(params);
        const { title, metadata } = body;
        if (title === undefined && metadata === undefined) throw invalid("title or metadata is required");
        const { access } = open(call, body.agentId ?? query.agentId);
        return { conversation: await access.update(id, { title, metadata }, query.userId) };
      },
    }),
    del(
      "/api/memory/conversations/:conversationId",
      "memory.deleteConversation",
      "Delete a conversation with its messages, its working memory and the threads of sub-agents",
      {
        query: "ConversationQuery",
        output: "DeletedConversation",
        async handle({ params, query }, call) {
          const { memory, principal } = open(call, query.agentId);
          await deleteConversationAndThreads(call.service, memory, principal, conversationIdOf(params), query.userId);
          return { deleted: true };
        },
      },
    ),
    post("/api/memory/conversations/:conversationId/clone", "memory.cloneConversation", "Clone a conversation", {
      query: "ConversationQuery",
      body: "CloneConversationRequest",
      idempotent: true,
      bodyOptional: true,
      failures: ["conflict"],
      output: { json: "ClonedConversation", status: 201 },
      handle({ params, query, body }, call) {
        const id = conversationIdOf(params);
        const { access } = open(call, body.agentId ?? query.agentId);
        const wanted = { ...defaults.CloneConversationRequest, ...body, charge: call.charge };
        return access.clone(id, wanted, query.userId);
      },
    }),
    get(
      "/api/memory/conversations/:conversationId/messages",
      "memory.listMessages",
      "Get the newest messages of a conversation, in order",
      {
        query: "MessagesQuery",
        output: "MessageList",
        handle({ params, query }, call) {
          const id = conversationIdOf(params);
          return open(call, query.agentId).access.messages(id, messageQuery(query));
        },
      },
    ),
    post("/api/memory/save-messages", "memory.saveMessages", "Save messages, all of them or none", {
      query: "MemoryQuery",
      body: "SaveMessagesRequest",
      idempotent: true,
      failures: ["not_found"],
      output: "SavedMessages",
      async handle({ query, body }, call) {
        const { access, principal } = open(call, body.agentId ?? query.agentId);
        return { saved: await access.save(saveEntries(body, principal)) };
      },
    }),
    post("/api/memory/messages/delete", "memory.deleteMessages", "Delete messages of a conversation", {
      query: "MemoryQuery",
      body: "DeleteMessagesRequest",
      failures: ["not_found"],
      output: "DeletedMessages",
      async handle({ query, body }, call) {
        const { memory, access, principal } = open(call, body.agentId ?? query.agentId);
        const user = requiredUser(principal, body.userId);
        const { conversationId: conversation, messageIds } = body;
        await call.service.turns.queue.drop({ memory: memory.name, conversation, user }, messageIds);
        return { deleted: await access.deleteMessages(conversation, messageIds, user) };
      },
    }),
    get("/api/memory/conversations/:conversationId/working-memory", "memory.getWorkingMemory", "Read working memory", {
      query: "WorkingMemoryQuery",
      output: "WorkingMemory",
      handle({ params, query }, call) {
        const id = conversationIdOf(params);
        const { access, principal } = open(call, query.agentId);
        const { scope } = query;
        const userId = scope === "user" ? actingUser(principal, query.userId) : query.userId;
        if (scope === "user" && userId === undefined) throw invalid("userId is required with scope=user");
        return access.workingMemory(id, { scope, userId });
      },
    }),
    post(
      "/api/memory/conversations/:conversationId/working-memory",
      "memory.updateWorkingMemory",
      "Replace working memory, or append to it",
      {
        query: "MemoryQuery",
        body: "UpdateWorkingMemoryRequest",
        idempotent: true,
        output: "WorkingMemoryUpdated",
        async handle({ params, query, body }, call) {
          const id = conversationIdOf(params);
          const { access } = open(call, body.agentId ?? query.agentId);
          const { content, mode = defaults.UpdateWorkingMemoryRequest.mode, scope, userId } = body;
          await access.updateWorkingMemory(id, content, mode, { scope, userId });
          return { updated: true };
        },
      },
    ),
    get("/api/memory/search", "memory.search", "Search messages by meaning", {
      query: "SearchQuery",
      failures: ["not_found"],
      output: "SearchResults",
      handle({ query }, call) {
        const { access } = open(call, query.agentId);
        const { searchQuery: text, limit = defaults.SearchQuery.limit, threshold, conversationId, userId } = query;
        return access.search({ text, limit, threshold, conversationId, userId });
      },
    }),
  ];
}

export const MEMORY_ROUTES = memoryRoutes((service, agentId) => service.chooseMemory(agentId));

// Deletes a conversation with its threads. What is at work on it is cancelled first, and writes none of it again.

/**
 * @param named user whose conversation is meant
 * @throws ServiceError `not_found` when there is none, and no answer is under way that would begin it
 */
async function deleteConversationAndThreads(
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
