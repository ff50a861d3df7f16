/** The bytes of request bodies that are in memory, of all requests together, and how many there may be. */
export class Uploads {
  readonly maxBytes: number;
  #bytes = 0;

  constructor(maxBytes: number) {
    this.maxBytes = maxBytes;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** Whether there is room for some more. A length that a head announces is a claim, and takes up no room yet. */
  fits(bytes: number): boolean {
    return this.#bytes + bytes <= this.maxBytes;
  }

  /** False, and nothing is taken, where there is no room. */
  reserve(bytes: number): boolean {
    if (!this.fits(bytes)) return false;
    this.#bytes += bytes;
    return true;
  }

  release(bytes: number): void {
    this.#bytes -= bytes;
  }
}
