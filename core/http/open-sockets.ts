/** The open WebSockets: closes them when the service stops, and when the tokens that opened them expire. */
import { within } from "../lib/abortable.ts";
import type { SocketPeer } from "./socket-peer.ts";

/** Codes from 4000 are for applications; this one is modelled on the HTTP status 401. */
const TOKEN_EXPIRED_CODE = 4401;

export class OpenSockets {
  readonly #open = new Set<SocketPeer>();
  #onEmpty: (() => void) | null = null;
  #closing = false;
  /** Milliseconds since 1970 before which no token of an open socket expires. */
  #nextExpiry = Number.POSITIVE_INFINITY;

  /** True after `close` was called: no new sockets are opened. */
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

  /** Closes sockets (4401) whose tokens have expired; called with each tick of the clock of `InFlight`. */
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
   * Closes all sockets (1001) and waits until their peers have answered, at most `timeout` milliseconds. Those that are left
   * then are closed by the transport.
   */
  async close(timeout: number): Promise<void> {
    this.#closing = true;
    for (const peer of [...this.#open]) peer.close(1001, "the server is stopping");
    if (this.#open.size === 0) return;
    const empty = new Promise<void>((resolve) => {
      this.#onEmpty = resolve;
    });
    await within(timeout, empty);
  }
}
