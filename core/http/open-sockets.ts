/** The sockets that are open, for the end of the service. */
import type { SocketPeer } from "./socket-peer.ts";

export class OpenSockets {
  readonly #open = new Set<SocketPeer>();
  #emptied: (() => void) | null = null;
  #closing = false;

  /** True from `close` on: none is opened any more. */
  get closing(): boolean {
    return this.#closing;
  }

  get size(): number {
    return this.#open.size;
  }

  add(peer: SocketPeer): void {
    this.#open.add(peer);
  }

  remove(peer: SocketPeer): void {
    this.#open.delete(peer);
    if (this.#open.size === 0) this.#emptied?.();
  }

  /**
   * Closes them (1001) and waits until their peers have answered, at most `patience` milliseconds. What is left then is for the
   * transport to cut.
   */
  async close(patience: number): Promise<void> {
    this.#closing = true;
    for (const peer of [...this.#open]) peer.close(1001, "the server is stopping");
    if (this.#open.size === 0) return;
    let timer: NodeJS.Timeout | undefined;
    await new Promise<void>((resolve) => {
      this.#emptied = resolve;
      timer = setTimeout(resolve, patience);
    });
    clearTimeout(timer);
  }
}
