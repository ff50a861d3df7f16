/** One memory, as a custom route sees it. */

import type { Service } from "../../app/service.ts";
import type { Context } from "../../http/route.ts";
import { type PerformInput, perform } from "../routes/perform.ts";
import type { RouteMemory } from "./route-services.ts";

type Of<K extends keyof RouteMemory> = Parameters<RouteMemory[K]>;

export class MemoryCalls implements RouteMemory {
  readonly #call: Context<Service>;
  readonly #name: string | undefined;

  constructor(call: Context<Service>, name: string | undefined) {
    this.#call = call;
    this.#name = name;
  }

  conversations(...[query]: Of<"conversations">) {
    return perform<"ConversationList">(this.#call, "memory.listConversations", this.#meant({ query }));
  }

  async create(...[body = {}]: Of<"create">) {
    const given = this.#meant({ body });
    return (await perform<"ConversationReply">(this.#call, "memory.createConversation", given)).conversation;
  }

  async get(...[conversationId, query]: Of<"get">) {
    const given = this.#meant({ params: { conversationId }, query });
    return (await perform<"ConversationReply">(this.#call, "memory.getConversation", given)).conversation;
  }

  async update(...[conversationId, body, query]: Of<"update">) {
    const given = this.#meant({ params: { conversationId }, query, body });
    return (await perform<"ConversationReply">(this.#call, "memory.updateConversation", given)).conversation;
  }

  async delete(...[conversationId, query]: Of<"delete">) {
    await perform(this.#call, "memory.deleteConversation", this.#meant({ params: { conversationId }, query }));
  }

  clone(...[conversationId, body = {}, query]: Of<"clone">) {
    const given = this.#meant({ params: { conversationId }, query, body });
    return perform<"ClonedConversation">(this.#call, "memory.cloneConversation", given);
  }

  messages(...[conversationId, query]: Of<"messages">) {
    const given = this.#meant({ params: { conversationId }, query });
    return perform<"MessageList">(this.#call, "memory.listMessages", given);
  }

  async save(...[body]: Of<"save">) {
    return (await perform<"SavedMessages">(this.#call, "memory.saveMessages", this.#meant({ body }))).saved;
  }

  async deleteMessages(...[body]: Of<"deleteMessages">) {
    return (await perform<"DeletedMessages">(this.#call, "memory.deleteMessages", this.#meant({ body }))).deleted;
  }

  search(...[searchQuery, query]: Of<"search">) {
    const given = this.#meant({ query: { ...query, searchQuery } });
    return perform<"SearchResults">(this.#call, "memory.search", given);
  }

  workingMemory(...[conversationId, query]: Of<"workingMemory">) {
    const given = this.#meant({ params: { conversationId }, query });
    return perform<"WorkingMemory">(this.#call, "memory.getWorkingMemory", given);
  }

  async updateWorkingMemory(...[conversationId, body]: Of<"updateWorkingMemory">) {
    await perform(this.#call, "memory.updateWorkingMemory", this.#meant({ params: { conversationId }, body }));
  }

  /** Sets the memory. Query and body may come from a client and must not change it. */
  #meant({ params, query, body }: PerformInput): PerformInput {
    const given: PerformInput = { query: { ...query, agentId: this.#name } };
    if (params !== undefined) given.params = params;
    if (typeof body === "object" && body !== null) given.body = { ...body, agentId: undefined };
    return given;
  }
}
