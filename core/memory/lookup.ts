/** Finds conversations for one principal. For an isolated principal the conversations of others do not exist. */
import { conversationNotFound, mayAccess, type Principal, permittedUser } from "../identity/principal.ts";
import { invalid } from "../lib/errors.ts";
import type { Row } from "../storage/store.ts";
import type { Domain } from "./domain.ts";
import { conversationJson, type Snapshot } from "./records/conversation.ts";
import { type Conversations, isRowAt } from "./records/directory.ts";

/** How often a conversation may be deleted and created again while one call works on it. */
export const MAX_LOOKUPS = 5;
const MESSAGES_TOO_LARGE = "these messages are larger than 64 MiB together: ask for fewer with limit";

/**
 * `userId` is the user to whom the conversation must belong. `meant` is the user whose conversation is looked up when several users have
 * one with that id.
 */
export class ConversationLookup {
  readonly #memory: string;
  readonly #domain: Domain;
  readonly #principal: Principal;

  constructor(memory: string, domain: Domain, principal: Principal) {
    this.#memory = memory;
    this.#domain = domain;
    this.#principal = principal;
  }

  /**
   * The current conversation in the store.
   *
   * @throws ServiceError `not_found` unless it exists and belongs to this caller and to that user
   */
  async fresh(id: string, userId: string | undefined, meant = userId): Promise<Snapshot> {
    const lookup = this.owner(id, meant);
    const owner = lookup instanceof Promise ? await lookup : lookup;
    return this.checked(id, await this.#conversations.fresh(this.#memory, id, owner), userId);
  }

  /** Like `fresh`, but from the cache, so it may be out of date. */
  async owned(id: string, userId: string | undefined, meant = userId): Promise<Snapshot> {
    const found = await this.ownedIfAny(id, userId, meant);
    if (found === undefined) throw conversationNotFound(id);
    return found;
  }

  /** Like `owned`; undefined when there is no such conversation. */
  async ownedIfAny(id: string, userId: string | undefined, meant = userId): Promise<Snapshot | undefined> {
    const lookup = this.owner(id, meant);
    const owner = lookup instanceof Promise ? await lookup : lookup;
    const found = await this.#conversations.find(this.#memory, id, owner);
    if (found === undefined || mayAccess(this.#principal, found.userId, userId)) return found;
    // The cache may be out of date: another process may have deleted that one, and this caller may have created one with the same id.
    const fresh = await this.#conversations.fresh(this.#memory, id, owner);
    return fresh === undefined ? undefined : this.checked(id, fresh, userId);
  }

  /** @throws ServiceError `not_found` unless it exists and belongs to this caller and to that user */
  checked(id: string, found: Snapshot | undefined, userId: string | undefined): Snapshot {
    if (found === undefined || !mayAccess(this.#principal, found.userId, userId)) throw conversationNotFound(id);
    return found;
  }

  /**
   * The user whose conversation with that id is meant, as an argument for `Conversations`. A caller that is not isolated and names no user
   * means the only one there is.
   *
   * @throws ServiceError `invalid_input` when there are several, and for an isolated caller that names another user
   */
  owner(id: string, meant: string | undefined): string | undefined | Promise<string | undefined> {
    const acting = permittedUser(this.#principal, meant);
    return acting !== undefined || !this.#domain.spaces.owned
      ? acting
      : this.#conversations.onlyOwner(this.#memory, id);
  }

  /**
   * The conversation as JSON text and its messages; undefined when there is none. One read returns both, and the owner is checked
   * before anything is returned.
   *
   * @throws ServiceError `invalid_input` when they are too large together
   */
  async page<P extends { conversation: Row | undefined; messages: unknown }>(
    id: string,
    wantedUser: string | undefined,
    pageOf: (number: number) => Promise<P>,
  ): Promise<
    (Omit<P, "conversation" | "messages"> & { conversation: string; messages: NonNullable<P["messages"]> }) | undefined
  > {
    const memory = this.#memory;
    const conversations = this.#conversations;
    const userId = wantedUser === undefined ? undefined : permittedUser(this.#principal, wantedUser);
    const lookup = this.owner(id, userId);
    const owner = lookup instanceof Promise ? await lookup : lookup;
    for (let count = 1; count <= MAX_LOOKUPS; count++) {
      const place = await conversations.findPlace(memory, id, owner);
      if (place === undefined) return undefined;
      const { number, ownId } = place;
      const page = await pageOf(number);
      const { conversation, messages } = page;
      if (conversation !== undefined && isRowAt(id, owner, place, conversation)) {
        const found = conversations.fromRow(memory, id, owner, place, conversation);
        if (found === undefined) return undefined;
        this.checked(id, found, userId);
        if (messages === null) throw invalid(MESSAGES_TOO_LARGE);
        return {
          ...page,
          conversation: conversationJson(conversation.value),
          messages: messages as NonNullable<P["messages"]>,
        };
      }
      conversations.forget({ memory, id, number, ownId, userId: owner ?? "" });
    }
    return undefined;
  }

  get #conversations(): Conversations {
    return this.#domain.conversations;
  }
}
