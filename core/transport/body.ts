/** Collects the chunks of a request body in one buffer that never grows past its limit. */
import type { BodyProblem, Uploads } from "../http/exchange.ts";

const FIRST_CAPACITY_BYTES = 4 * 1024;
/** An unread body of up to this length is received and discarded, to keep the connection; a longer one closes it. */
export const MAX_DISCARDED_BODY_BYTES = 64 * 1024;

/**
 * A growing buffer instead of a list of chunks: a body sent one byte at a time would otherwise cost a hundred times its size.
 * Nothing is allocated for an announced length, because it is only a claim.
 */
export class BodyBuffer {
  readonly #limit: number;
  readonly #uploads: Uploads | undefined;
  #bytes: Buffer | null = null;
  #length = 0;
  /** Whether the content was given up. */
  dropped = false;

  constructor(limit: number, uploads?: Uploads) {
    this.#limit = limit;
    this.#uploads = uploads;
  }

  /** The problem of a body of this announced length; null when it would fit now. */
  refusalFor(announced: number): BodyProblem | null {
    if (announced > this.#limit) return "too_large";
    return this.#uploads?.fits(announced) === false ? "crowded" : null;
  }

  /**
   * Adds a copy of a chunk, or returns why it does not fit: then the buffer is dropped and must not be used again.
   *
   * @param last whether this is the last chunk
   */
  add(chunk: Uint8Array, last = false): BodyProblem | null {
    const length = this.#length + chunk.length;
    const problem =
      length > this.#limit ? "too_large" : this.#uploads?.reserve(chunk.length) === false ? "crowded" : null;
    if (problem !== null) {
      this.drop();
      return problem;
    }
    // The usual case, a body in one piece: allocate exactly its length.
    if (last && this.#bytes === null) {
      this.#bytes = Buffer.from(chunk);
      this.#length = length;
      return null;
    }
    if (this.#bytes === null || length > this.#bytes.length) this.#grow(length);
    this.#bytes!.set(chunk, this.#length);
    this.#length = length;
    return null;
  }

  drop(): void {
    this.dropped = true;
    this.#uploads?.release(this.#length);
    this.#length = 0;
    this.#bytes = null;
  }

  /** The whole body. It belongs to the caller, who must release its bytes from the upload budget. */
  takeAll(): Uint8Array {
    return this.#bytes === null ? new Uint8Array(0) : this.#bytes.subarray(0, this.#length);
  }

  #grow(needed: number): void {
    const doubled = Math.max(needed, FIRST_CAPACITY_BYTES, (this.#bytes?.length ?? 0) * 2);
    const grown = Buffer.allocUnsafeSlow(Math.max(needed, Math.min(doubled, this.#limit)));
    if (this.#bytes !== null) grown.set(this.#bytes.subarray(0, this.#length));
    this.#bytes = grown;
  }
}
