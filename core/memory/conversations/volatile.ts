/**
 * Limits the bytes of conversations in a store that ends with the process: the least recently changed ones are removed.
 */
import type { Logger } from "pino";
import { messageOf } from "../../lib/errors.ts";
import { CONVERSATION_SPACES } from "../../storage/keys.ts";
import type { Store } from "../../storage/store.ts";
import type { Domain } from "../domain.ts";
import { ConversationGone, type Known } from "../records/directory.ts";
import { deleteConversation } from "./remove.ts";

/** Limit for the rows of all conversations together. */
const MAX_BYTES = 48 * 1024 * 1024;
/** How much is freed at once. */
const ROOM_BYTES = 1024 * 1024;
/** Removals before other work gets its turn. */
const REMOVALS_PER_TURN = 100;

export class VolatileConversations {
  readonly #store: Store;
  readonly #logger: Logger | undefined;
  /** Conversations by number, the least recently changed first. */
  readonly #used = new Map<number, Known>();
  #isMakingRoom = false;
  #hasWarned = false;

  constructor(store: Store, logger?: Logger) {
    this.#store = store;
    this.#logger = logger;
  }

  /** Called for every conversation that changes or is read from the store. Space is freed in the background. */
  use(domain: Domain, { memory, number, id, ownId, userId }: Known): void {
    this.#used.delete(number);
    this.#used.set(number, { memory, number, id, ownId, userId });
    if (this.#isMakingRoom || this.#bytes() <= MAX_BYTES) return;
    this.#isMakingRoom = true;
    this.#makeRoom(domain)
      .catch((error) => this.#logger?.warn({ err: error }, `conversations cannot make room: ${messageOf(error)}`))
      .finally(() => {
        this.#isMakingRoom = false;
      });
  }

  forget(number: number): void {
    this.#used.delete(number);
  }

  async #makeRoom(domain: Domain): Promise<void> {
    this.#warn();
    let removed = 0;
    for (const used of this.#used.values()) {
      // The most recently changed conversation is kept, because it is in use.
      if (this.#used.size === 1 || this.#bytes() <= MAX_BYTES - ROOM_BYTES) return;
      try {
        await deleteConversation(domain, used);
      } catch (error) {
        if (!(error instanceof ConversationGone)) throw error;
      }
      this.#used.delete(used.number);
      if (++removed % REMOVALS_PER_TURN === 0) await new Promise(setImmediate);
    }
  }

  #warn(): void {
    if (this.#hasWarned) return;
    this.#hasWarned = true;
    this.#logger?.warn(
      "the conversations in memory: take 48 MiB; from now on those that changed least recently are removed",
    );
  }

  #bytes(): number {
    let bytes = 0;
    for (const space of CONVERSATION_SPACES) bytes += this.#store.held?.(space) ?? 0;
    return bytes;
  }
}
