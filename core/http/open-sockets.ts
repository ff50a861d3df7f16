/** The sockets that are open, for the end of the service, and for the end of the tokens that opened them. */
import type { SocketPeer } from "./socket-peer.ts";

/** 4000 and up is ours to give a meaning; this one is after the status of a token that is not good. */
const TOKEN_EXPIRED_CODE = 4401;

export class OpenSockets {
  readonly #open = new Set<SocketPeer>();
  #onEmpty: (() => void) | null = null;
  #closing = false;
  /** Milliseconds since 1970 before which no token of an open socket ends. */
  #nextExpiry = Number.POSITIVE_INFINITY;

  /** True from `close` on: none is opened any more. */
  get closing(): boolean {
    return this.#closing;
  }

  get size(): number {
    return this.#open.size;
  }

  add(peer: SocketPeer): void {
    this.#open.add(peer);
    if (peer.expires !== null && peer.expires < this.#nextExpiry) this.#nextExpiry = peer.expires;
  }

  remove(peer: SocketPeer): void {
    this.#open.delete(peer);
    if (this.#open.size === 0) this.#onEmpty?.();
  }

  /** Closes those (4401) whose tokens have ended; called by the clock of all deadlines. */
  tick(): void {
    const now = Date.now();
    if (now < this.#nextExpiry) return;
    this.#nextExpiry = Number.POSITIVE_INFINITY;
    for (const peer of [...this.#open]) {
      const { expires } = peer;
      if (expires === null || peer.closed) continue;
      if (expires <= now) peer.close(TOKEN_EXPIRED_CODE, "the token has expired");
      else if (expires < this.#nextExpiry) this.#nextExpiry = expires;
    }
  }

  /**
   * Closes them (1001) and waits until their peers have answered, at most `patience` milliseconds. What is left then is for the
   * transport to cut.
   */
  async close(timeout: number): Promise<void> {
    this.#closing = true;
    for (const peer of [...this.#open]) peer.close(1001, "the server is stopping");
    if (this.#open.size === 0) return;
    let timer: NodeJS.Timeout | undefined;
    await new Promise<void>((resolve) => {
      this.#onEmpty = resolve;
      timer = setTimeout(resolve, timeout);
    });
    clearTimeout(timer);
  }
}
