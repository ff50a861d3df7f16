/** When a turn is stored while it goes on: one write at a time, and one more for what came during it. */
export class Checkpoints {
  readonly #write: () => Promise<void>;
  readonly #failed: (error: unknown) => void;
  #timer: NodeJS.Timeout | null = null;
  #writing: Promise<void> | null = null;
  #again = false;
  #ended = false;

  /** @param failed is told of a failed write; a later one makes up for it */
  constructor(write: () => Promise<void>, failed: (error: unknown) => void) {
    this.#write = write;
    this.#failed = failed;
  }

  get ended(): boolean {
    return this.#ended;
  }

  /** The write that is under way; null when there is none. */
  get writing(): Promise<void> | null {
    return this.#writing;
  }

  /** Writes after so many milliseconds at the latest. */
  within(delay: number): void {
    if (delay === 0) this.now();
    else this.#timer ??= setTimeout(() => this.now(), delay);
  }

  now(): void {
    this.#stopTimer();
    if (this.#ended) return;
    if (this.#writing !== null) {
      this.#again = true;
      return;
    }
    this.#writing = this.#write()
      .catch(this.#failed)
      .then(() => {
        this.#writing = null;
        if (!this.#again) return;
        this.#again = false;
        this.now();
      });
  }

  /** No more of them. Resolves when the last one is written. */
  async end(): Promise<void> {
    this.#ended = true;
    this.#stopTimer();
    await this.#writing;
  }

  #stopTimer(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
  }
}
