/** Conversations in a store that ends with the process: they have a bounded room, which those that changed least recently make. */
import type { Logger } from "pino";
import { messageOf } from "../../lib/errors.ts";
import { excessBytes } from "../../storage/memory-shares.ts";
import type { Store } from "../../storage/store.ts";
import type { Domain } from "../domain.ts";
import { ConversationGone, type Known } from "../records/directory.ts";
import { deleteConversation } from "./remove.ts";

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

  /** Called for every conversation that changes, or is read from the store. */
  use(domain: Domain, { memory, number, id, ownId, userId }: Known): void {
    this.#used.delete(number);
    this.#used.set(number, { memory, number, id, ownId, userId });
    this.makeRoom(domain);
  }

  /** In the background, where conversations take more than their room. */
  makeRoom(domain: Domain): void {
    if (this.#isMakingRoom || this.#excess() <= 0) return;
    this.#isMakingRoom = true;
    this.#removeOldest(domain)
      .catch((error) => this.#logger?.warn({ err: error }, `conversations cannot make room: ${messageOf(error)}`))
      .finally(() => {
        this.#isMakingRoom = false;
      });
  }

  forget(number: number): void {
    this.#used.delete(number);
  }

  async #removeOldest(domain: Domain): Promise<void> {
    this.#warn();
    let removed = 0;
    for (const used of this.#used.values()) {
      // The one that changed last is somebody's at this moment.
      if (this.#used.size === 1 || this.#excess() <= -ROOM_BYTES) return;
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
      "the conversations in memory: take as much as they may; from now on those that changed least recently are removed",
    );
  }

  #excess(): number {
    return excessBytes(this.#store, "conversations");
  }
}
