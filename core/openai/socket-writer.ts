/** Writes to a WebSocket whose messages must all arrive: the writer has to wait while the peer is behind. */
import type { Peer } from "../http/route.ts";

/** Most bytes that may wait for the peer. More than one buffer of the transport, so that it reports when they are sent. */
const MAX_WAITING_BYTES = 64 * 1024;

export class SocketWriter {
  readonly #peer: Peer;
  #behind: Promise<void> | undefined;
  #caughtUp: () => void = () => {};

  constructor(peer: Peer) {
    this.#peer = peer;
  }

  get closed(): boolean {
    return this.#peer.closed;
  }

  /** Undefined unless the peer is behind; resolves when it has caught up, or has left. */
  get behind(): Promise<void> | undefined {
    if (this.#peer.closed || this.#peer.buffered <= MAX_WAITING_BYTES) return undefined;
    this.#behind ??= new Promise((resolve) => {
      this.#caughtUp = resolve;
    });
    return this.#behind;
  }

  send(messages: readonly { readonly json: string }[]): void {
    if (messages.length === 0) return;
    this.#peer.cork(() => {
      for (const { json } of messages) this.#peer.deliver(json);
    });
  }

  /** Must be called when the peer has read some of what waits, and when it has left. */
  drained(): void {
    if (!this.#peer.closed && this.#peer.buffered > MAX_WAITING_BYTES) return;
    this.#behind = undefined;
    this.#caughtUp();
  }
}
