/** Repeats work at an interval; two rounds never overlap. Of consecutive failures only the first is reported. */
export class Interval {
  readonly #interval: number;
  readonly #work: () => Promise<void>;
  readonly #failed: (error: unknown) => void;
  readonly #stopping = new AbortController();
  #timer: NodeJS.Timeout | null = null;
  #round: Promise<void> = Promise.resolve();
  #isFailing = false;
  #isHurried = false;

  /** @param interval milliseconds between the end of one round and the start of the next */
  constructor(interval: number, work: () => Promise<void>, failed: (error: unknown) => void) {
    this.#interval = interval;
    this.#work = work;
    this.#failed = failed;
  }

  /** Aborts when the interval is stopped, so that a long round may end early. */
  get signal(): AbortSignal {
    return this.#stopping.signal;
  }

  /** Starts with a round now; resolves when it has ended, or rejects like it. */
  begin(): Promise<void> {
    const first = this.#work();
    this.#round = this.#report(first).finally(() => this.start());
    return first;
  }

  /** Starts with a round after `delay` milliseconds. */
  start(delay = this.#interval): void {
    if (this.signal.aborted) return;
    const wait = this.#isHurried ? 0 : delay;
    this.#isHurried = false;
    this.#timer = setTimeout(() => {
      this.#timer = null;
      this.#round = this.#report(this.#work()).finally(() => this.start());
    }, wait);
    this.#timer.unref();
  }

  /** Starts the next round now, or as soon as the current one has ended. */
  hurry(): void {
    if (this.#timer === null) {
      this.#isHurried = true;
      return;
    }
    clearTimeout(this.#timer);
    this.start(0);
  }

  /** Prevents further rounds. Resolves when the current one has ended. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    if (this.#timer !== null) clearTimeout(this.#timer);
    await this.#round;
  }

  async #report(round: Promise<void>): Promise<void> {
    try {
      await round;
      this.#isFailing = false;
    } catch (error) {
      if (!this.#isFailing) this.#failed(error);
      this.#isFailing = true;
    }
  }
}
