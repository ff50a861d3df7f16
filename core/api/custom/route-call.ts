/** The `call` of a custom route. Whatever is behind a getter is created when it is read, so that routes pay only for what they use. */
import type { Logger } from "pino";
import type { Schemas } from "../../../generated/types.ts";
import type { Service } from "../../app/service.ts";
import type { Context } from "../../http/route.ts";
import { type PerformInput, perform } from "../routes/perform.ts";
import type { RouteAgents, RouteCall, RouteClient, RouteMemory, RouteTools, RouteWorkflows } from "./route-services.ts";

export class CustomCall implements RouteCall {
  readonly #call: Context<Service>;
  readonly requestId: string;

  constructor(call: Context<Service>) {
    this.#call = call;
    this.requestId = call.requestId;
  }

  get signal(): AbortSignal {
    return this.#call.signal;
  }

  get logger(): Logger {
    return this.#call.logger;
  }

  get client(): RouteClient {
    const { address, scheme, host } = this.#call.client;
    return { address, scheme, host };
  }

  get agents(): RouteAgents {
    return agentCalls(this.#call);
  }

  get tools(): RouteTools {
    return toolCalls(this.#call);
  }

  get workflows(): RouteWorkflows {
    return workflowCalls(this.#call);
  }

  /** Returns an arrow function, so that routes may destructure the call. */
  get memory(): (name?: string) => RouteMemory {
    return (name) => memoryCalls(this.#call, name);
  }
}

const agentCalls = (call: Context<Service>): RouteAgents => ({
  list: () => perform<"AgentList">(call, "agents.list"),
  get: (id) => perform<"AgentDetail">(call, "agents.get", { params: { id } }),
  generateText: (id, body) => perform<"TextResult">(call, "agents.generateText", { params: { id }, body }),
  generateObject: (id, body) => perform<"GeneratedObject">(call, "agents.generateObject", { params: { id }, body }),
  history: (id, query) => perform<"HistoryPage">(call, "agents.history", { params: { id }, query }),
});

const toolCalls = (call: Context<Service>): RouteTools => ({
  list: () => perform<"ToolList">(call, "tools.list"),
  async execute(name, input, options) {
    const body = { input, context: options?.context };
    return (await perform<"ToolExecutionResult">(call, "tools.execute", { params: { name }, body })).result;
  },
});

const workflowCalls = (call: Context<Service>): RouteWorkflows => ({
  list: () => perform<"WorkflowList">(call, "workflows.list"),
  get: (id) => perform<"WorkflowDetail">(call, "workflows.get", { params: { id } }),
  executions: (query) => perform<"WorkflowExecutionList">(call, "workflows.listExecutions", { query }),
  execute: (id, body) => perform<"ExecutionResult">(call, "workflows.execute", { params: { id }, body }),
  suspend: (id, executionId, reason, query) =>
    perform<"ExecutionSuspended">(call, "workflows.suspend", { params: { id, executionId }, query, body: { reason } }),
  resume: (id, executionId, body = {}, query) =>
    perform<"ExecutionResult">(call, "workflows.resume", { params: { id, executionId }, query, body }),
  replay: (id, executionId, body, query) =>
    perform<"ExecutionResult">(call, "workflows.replay", { params: { id, executionId }, query, body }),
  cancel: (id, executionId, reason, query) =>
    perform<"ExecutionCancellation">(call, "workflows.cancel", {
      params: { id, executionId },
      query,
      body: { reason },
    }),
  state: (id, executionId, query) =>
    perform<"ExecutionState">(call, "workflows.getState", { params: { id, executionId }, query }),
});

/** The memory of that name. Query and body may come from a client and must not choose another one. */
function memoryCalls(call: Context<Service>, name: string | undefined): RouteMemory {
  const ask = <K extends keyof Schemas>(operation: string, { params, query, body }: PerformInput) =>
    perform<K>(call, operation, {
      ...(params !== undefined && { params }),
      query: { ...query, agentId: name },
      ...(typeof body === "object" && body !== null && { body: { ...body, agentId: undefined } }),
    });
  return {
    conversations: (query) => ask<"ConversationList">("memory.listConversations", { query }),
    create: async (body = {}) => (await ask<"ConversationReply">("memory.createConversation", { body })).conversation,
    get: async (conversationId, query) =>
      (await ask<"ConversationReply">("memory.getConversation", { params: { conversationId }, query })).conversation,
    update: async (conversationId, body, query) =>
      (await ask<"ConversationReply">("memory.updateConversation", { params: { conversationId }, query, body }))
        .conversation,
    delete: async (conversationId, query) =>
      void (await ask("memory.deleteConversation", { params: { conversationId }, query })),
    clone: (conversationId, body = {}, query) =>
      ask<"ClonedConversation">("memory.cloneConversation", { params: { conversationId }, query, body }),
    messages: (conversationId, query) =>
      ask<"MessageList">("memory.listMessages", { params: { conversationId }, query }),
    save: async (body) => (await ask<"SavedMessages">("memory.saveMessages", { body })).saved,
    deleteMessages: async (body) => (await ask<"DeletedMessages">("memory.deleteMessages", { body })).deleted,
    search: (searchQuery, query) => ask<"SearchResults">("memory.search", { query: { ...query, searchQuery } }),
    workingMemory: (conversationId, query) =>
      ask<"WorkingMemory">("memory.getWorkingMemory", { params: { conversationId }, query }),
    updateWorkingMemory: async (conversationId, body) =>
      void (await ask("memory.updateWorkingMemory", { params: { conversationId }, body })),
  };
}
