/**
 * The newest response of each open WebSocket, so that the next one can continue it although it is not stored. When all of them exceed
 * a bound the oldest are dropped: their clients get the error that the response does not exist, and send the whole conversation again.
 */

import type { EarlierItems } from "./items.ts";

/** Most characters of all of them together, and of a single one. */
const MAX_CHARACTERS = 64 * 1024 * 1024;
const MAX_CHARACTERS_OF_ONE = 8 * 1024 * 1024;

interface Recent {
  readonly id: string;
  /** The items of the conversation up to its end. */
  readonly items: EarlierItems;
}

export class RecentResponses {
  /** Responses by their socket, the oldest first. */
  readonly #bySocket = new Map<object, Recent>();
  #size = 0;

  /** The conversation up to that response, if it is the newest of the socket. */
  get(socket: object, id: string): EarlierItems | undefined {
    const recent = this.#bySocket.get(socket);
    return recent?.id === id ? recent.items : undefined;
  }

  set(socket: object, id: string, items: EarlierItems): void {
    this.forget(socket);
    if (items.size > MAX_CHARACTERS_OF_ONE) return;
    this.#bySocket.set(socket, { id, items });
    this.#size += items.size;
    for (const oldest of this.#bySocket.keys()) {
      if (this.#size <= MAX_CHARACTERS) return;
      this.forget(oldest);
    }
  }

  forget(socket: object): void {
    this.#size -= this.#bySocket.get(socket)?.items.size ?? 0;
    this.#bySocket.delete(socket);
  }
}
