/** The budget of bytes that the bodies of all requests together may take up in memory. */
export class Uploads {
  readonly maxBytes: number;
  #bytes = 0;

  constructor(maxBytes: number) {
    this.maxBytes = maxBytes;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** Whether that many bytes would fit now. An announced length is only checked, not reserved: it is merely a claim. */
  fits(bytes: number): boolean {
    return this.#bytes + bytes <= this.maxBytes;
  }

  /** Reserves the bytes. False, and nothing is reserved, when they do not fit. */
  reserve(bytes: number): boolean {
    if (!this.fits(bytes)) return false;
    this.#bytes += bytes;
    return true;
  }

  release(bytes: number): void {
    this.#bytes -= bytes;
  }
}
