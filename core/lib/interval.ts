/** Repeats work at an interval; two rounds never overlap. */
export class Interval {
  readonly #interval: number;
  readonly #work: () => Promise<void>;
  readonly #failed: (error: unknown) => void;
  #timer: NodeJS.Timeout | null = null;
  #round: Promise<void> = Promise.resolve();
  #stopped = false;

  /** @param interval milliseconds between the end of one round and the start of the next */
  constructor(interval: number, work: () => Promise<void>, failed: (error: unknown) => void) {
    this.#interval = interval;
    this.#work = work;
    this.#failed = failed;
  }

  /** Starts with a round now; resolves when that has ended, or rejects as it does. */
  begin(): Promise<void> {
    const first = this.#work();
    this.#round = first.catch(this.#failed).finally(() => this.start());
    return first;
  }

  /** Starts with a round after one interval. */
  start(): void {
    if (this.#stopped) return;
    this.#timer = setTimeout(() => {
      this.#round = this.#work()
        .catch(this.#failed)
        .finally(() => this.start());
    }, this.#interval);
    this.#timer.unref();
  }

  /** No further round starts. Resolves when the current one has ended. */
  async stop(): Promise<void> {
    this.#stopped = true;
    if (this.#timer !== null) clearTimeout(this.#timer);
    await this.#round;
  }
}
