/** The chunks of a streamed reply over a native response, including those that wait for a slow reader. */
import { UwsFlow } from "./uws-flow.ts";

type Chunk = string | Uint8Array;

export class UwsStream extends UwsFlow {
  /** Bytes that wait for the reader. */
  buffered = 0;
  /** Chunks that were not passed to the addon yet. */
  #waiting: Chunk[] = [];
  /** Bytes of the chunk that the addon accepted but could not send completely. */
  #held = 0;
  #ending: (() => void) | null = null;
  #drain: Promise<void> | null = null;
  #resolveDrain: (() => void) | null = null;

  /** The response must be corked. False when the reader is behind; the chunk is accepted all the same. */
  write(chunk: Chunk): boolean {
    if (!this.blocked) {
      if (this.response.write(chunk)) return true;
      this.#hold(chunk);
      this.buffered += this.#held;
      this.block();
      return false;
    }
    this.#waiting.push(chunk);
    this.buffered += sizeOf(chunk);
    return false;
  }

  drained(): Promise<void> {
    if (!this.blocked) return Promise.resolve();
    this.#drain ??= new Promise((resolve) => {
      this.#resolveDrain = resolve;
    });
    return this.#drain;
  }

  /** False when the reader is behind: then `finish` is called, corked, when all waiting chunks were passed to the addon. */
  end(finish: () => void): boolean {
    if (!this.blocked) return true;
    this.#ending = finish;
    this.resolveDrained();
    return false;
  }

  resolveDrained(): void {
    this.#drain = null;
    this.#resolveDrain?.();
    this.#resolveDrain = null;
  }

  protected push(): boolean {
    this.buffered -= this.#held;
    this.#held = 0;
    const waiting = this.#waiting;
    for (let at = 0; at < waiting.length; at++) {
      const chunk = waiting[at]!;
      if (this.response.write(chunk)) {
        this.buffered -= sizeOf(chunk);
        continue;
      }
      this.#hold(chunk);
      this.#waiting = waiting.slice(at + 1);
      return false;
    }
    this.#waiting = [];
    if (this.#ending !== null) this.#ending();
    else this.resolveDrained();
    return true;
  }

  #hold(chunk: Chunk): void {
    this.#held = sizeOf(chunk);
  }
}

function sizeOf(chunk: Chunk): number {
  return typeof chunk === "string" ? Buffer.byteLength(chunk) : chunk.length;
}
