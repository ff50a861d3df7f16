/** What writers of streams share: back-pressure, the bound of what waits for a slow reader, and news of one that left. */
import type { Exchange } from "./exchange.ts";

export abstract class StreamWriter {
  protected readonly exchange: Exchange;
  /** Bytes that may wait for a reader in all; a producer that goes on regardless of one that is behind loses the connection. */
  readonly #limit: number;
  /** Settles when a reader that is behind has caught up. */
  protected behind: Promise<void> | undefined;
  #listener: (() => void) | null = null;
  #expires = Number.POSITIVE_INFINITY;
  #onExpired: (() => void) | null = null;
  /** Set at each write, read and reset by the heartbeat. */
  wrote = false;

  constructor(exchange: Exchange, limit: number) {
    this.exchange = exchange;
    this.#limit = limit;
  }

  /** Whether status and headers are out, or about to be. */
  abstract get opened(): boolean;
  /** Sends status and headers now. */
  abstract open(): void;
  /** Shows that a silent stream is alive, where its protocol has a way to. */
  abstract heartbeat(): void;
  /** Ends a stream that has begun with what its protocol has for a failure. */
  abstract fail(message: string): void;
  /** Ends a stream whose producer is done. */
  abstract finish(): void;

  /** Has `ended` called, in the place of the first event that comes after `time`, in milliseconds since 1970. */
  expireAt(time: number, onExpired: () => void): void {
    this.#expires = time;
    this.#onExpired = onExpired;
  }

  /** Whether the time of the reader has passed: nothing goes out to him any more but that it has. */
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
    const wasBehind = this.behind !== undefined;
    if (exchange.write(chunk) || exchange.closed) return;
    // One message that is large by itself is in memory already, and whoever reads it is not slow for that.
    if (wasBehind && exchange.buffered > this.#limit) {
      exchange.destroy();
      return;
    }
    this.behind ??= exchange.drained().then(() => {
      this.behind = undefined;
    });
  }
}
