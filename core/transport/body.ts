/** Gathers the chunks of one request body into one buffer that never grows past its limit. */

const FIRST_CAPACITY = 4 * 1024;

/**
 * A growing buffer instead of a list of chunks: a body sent one byte at a time would otherwise cost a hundred times its
 * size, and its length in a header is only a claim, so nothing is reserved on the strength of it.
 */
export class BodyBuffer {
  readonly #limit: number;
  #bytes: Buffer | null = null;
  #length = 0;

  constructor(limit: number) {
    this.#limit = limit;
  }

  /** Copies a chunk in. False when it does not fit: the buffer is then dropped and must not be used again. */
  add(chunk: Uint8Array): boolean {
    const length = this.#length + chunk.length;
    if (length > this.#limit) {
      this.#bytes = null;
      return false;
    }
    if (this.#bytes === null || length > this.#bytes.length) this.#grow(length);
    this.#bytes!.set(chunk, this.#length);
    this.#length = length;
    return true;
  }

  /** What was added, as a view that belongs to the caller. */
  take(): Uint8Array {
    return this.#bytes === null ? new Uint8Array(0) : this.#bytes.subarray(0, this.#length);
  }

  #grow(needed: number): void {
    const doubled = Math.max(needed, FIRST_CAPACITY, (this.#bytes?.length ?? 0) * 2);
    const grown = Buffer.allocUnsafeSlow(Math.max(needed, Math.min(doubled, this.#limit)));
    if (this.#bytes !== null) grown.set(this.#bytes.subarray(0, this.#length));
    this.#bytes = grown;
  }
}
