/** What the writers of streams share: back-pressure, the bound on what may wait for a slow reader, and the notice that a reader left. */
import type { Exchange } from "./exchange.ts";

export abstract class StreamWriter {
  protected readonly exchange: Exchange;
  /** Characters that a producer may write beyond the one message with which the reader fell behind. Then the connection is closed. */
  readonly #limit: number;
  /** Characters written since the reader fell behind. */
  #written = 0;
  /** Resolves when a slow reader has caught up; undefined while it is not behind. */
  protected behind: Promise<void> | undefined;
  #listener: (() => void) | null = null;
  #expires = Number.POSITIVE_INFINITY;
  #onExpired: (() => void) | null = null;
  /** Set by each write, reset by the clock that sends heartbeats. */
  wrote = false;

  constructor(exchange: Exchange, limit: number) {
    this.exchange = exchange;
    this.#limit = limit;
  }

  /** Whether status and headers are sent, or about to be. */
  abstract get opened(): boolean;
  /** Sends status and headers now. */
  abstract open(): void;
  /** Shows that a silent stream is alive, if its protocol has a way to. */
  abstract heartbeat(): void;
  /** Ends an open stream with the failure message of its protocol. */
  abstract fail(message: string): void;
  /** Ends a stream whose producer is done. */
  abstract finish(): void;

  /** Calls `onExpired` in place of the first event after `time`, in milliseconds since 1970. */
  expireAt(time: number, onExpired: () => void): void {
    this.#expires = time;
    this.#onExpired = onExpired;
  }

  /** Whether the reader's credentials have expired: then it gets one last message about that. */
  protected isExpired(): boolean {
    if (this.#onExpired === null || Date.now() < this.#expires) return false;
    const onExpired = this.#onExpired;
    this.#onExpired = null;
    onExpired();
    return true;
  }

  onLeave(listener: () => void): void {
    this.#listener = listener;
  }

  /** The reader is gone. */
  leave(): void {
    this.#listener?.();
    this.#listener = null;
  }

  protected write(chunk: string): void {
    const { exchange } = this;
    // A single message above the limit is accepted: it is in memory already, and its reader need not be slow.
    this.#written = this.behind === undefined ? 0 : this.#written + chunk.length;
    if (exchange.write(chunk) || exchange.closed) return;
    if (this.#written > this.#limit && exchange.buffered > this.#limit) {
      exchange.destroy();
      return;
    }
    this.behind ??= exchange.drained().then(() => {
      this.behind = undefined;
    });
  }
}
