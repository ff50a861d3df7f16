/** The bytes of request bodies that are in memory, of all requests together, and how many there may be. */
export class Uploads {
  readonly most: number;
  #held = 0;

  constructor(most: number) {
    this.most = most;
  }

  get held(): number {
    return this.#held;
  }

  /** Whether there is room for some more. A length that a head announces is a claim, and takes up no room yet. */
  fits(bytes: number): boolean {
    return this.#held + bytes <= this.most;
  }

  /** False, and nothing is taken, where there is no room. */
  take(bytes: number): boolean {
    if (!this.fits(bytes)) return false;
    this.#held += bytes;
    return true;
  }

  give(bytes: number): void {
    this.#held -= bytes;
  }
}
