/** How many executions run in this process at once. */
import { unavailable } from "../../lib/errors.ts";

export class Room {
  readonly #most: number;
  readonly #running: () => number;
  /** Places kept for what is about to run. */
  #kept = 0;
  readonly #waiting: (() => void)[] = [];
  #tellFull: () => void = () => {};
  /** Settles when something has to wait for the first time. */
  readonly full: Promise<void> = new Promise((resolve) => {
    this.#tellFull = resolve;
  });

  constructor(most: number, running: () => number) {
    this.#most = most;
    this.#running = running;
  }

  get #free(): boolean {
    return this.#running() + this.#kept < this.#most;
  }

  /**
   * For what a client asks for, which does not wait: what does goes first.
   *
   * @throws ServiceError `unavailable`
   */
  require(): void {
    if (this.#free && this.#waiting.length === 0) return;
    throw unavailable(`${this.#most} executions are running, as many as server.limits.executions allows: try again`);
  }

  /** Runs `work`, which may begin one, as soon as there is a place for it. */
  async keep<T>(work: () => Promise<T>): Promise<T> {
    if (this.#free) this.#kept++;
    else {
      this.#tellFull();
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    }
    try {
      return await work();
    } finally {
      this.#kept--;
      this.left();
    }
  }

  /** A place may have become free. */
  left(): void {
    if (this.#waiting.length === 0 || !this.#free) return;
    this.#kept++;
    this.#waiting.shift()!();
  }

  /** Lets all that waits go on at once: nothing is to begin any more. */
  release(): void {
    for (const go of this.#waiting.splice(0)) {
      this.#kept++;
      go();
    }
  }
}
