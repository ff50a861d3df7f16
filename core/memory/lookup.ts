/** Finds conversations for one principal. For an isolated principal the conversations of others do not exist. */

import { conversationNotFound, mayAccess, permittedUser } from "../identity/ownership.ts";
import type { Principal } from "../identity/principal.ts";
import type { Domain } from "./domain.ts";
import type { Snapshot } from "./records/conversation.ts";
import type { Conversations } from "./records/directory.ts";

/**
 * `userId` is the user that the conversation must belong to. `meant` is the user whose conversation is looked for where several
 * users have one of that id.
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
   * The conversation as it is in the store now.
   *
   * @throws ServiceError `not_found` unless it exists, and belongs to this caller and to that user
   */
  async fresh(id: string, userId: string | undefined, meant = userId): Promise<Snapshot> {
    const lookup = this.owner(id, meant);
    const owner = lookup instanceof Promise ? await lookup : lookup;
    return this.checked(id, await this.#conversations.fresh(this.#memory, id, owner), userId);
  }

  /** Like `fresh`, but from the cache, and so maybe out of date. */
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
    // The cache may be out of date: another process may have deleted that one, and this caller may have made one of the same id.
    const fresh = await this.#conversations.fresh(this.#memory, id, owner);
    return fresh === undefined ? undefined : this.checked(id, fresh, userId);
  }

  /** @throws ServiceError `not_found` unless it exists, and belongs to this caller and to that user */
  checked(id: string, found: Snapshot | undefined, userId: string | undefined): Snapshot {
    if (found === undefined || !mayAccess(this.#principal, found.userId, userId)) throw conversationNotFound(id);
    return found;
  }

  /**
   * The user whose conversation of that id is meant, as `Conversations` takes it. A caller who is not isolated and names nobody means
   * the only one there is.
   *
   * @throws ServiceError `invalid_input` when there are several, and for an isolated caller that names somebody else
   */
  owner(id: string, meant: string | undefined): string | undefined | Promise<string | undefined> {
    const acting = permittedUser(this.#principal, meant);
    return acting !== undefined || !this.#domain.spaces.owned
      ? acting
      : this.#conversations.onlyOwner(this.#memory, id);
  }

  get #conversations(): Conversations {
    return this.#domain.conversations;
  }
}
