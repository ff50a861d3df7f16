/** Limits how many executions run in this process at once, and begins none where there is no room for it. */
import { unavailable } from "../../lib/errors.ts";

export class ExecutionCapacity {
  #limit: number;
  readonly #running: () => number;
  readonly #refused: (() => void) | undefined;
  /** Slots reserved for executions that are about to run. */
  #reserved = 0;
  readonly #waiting: (() => void)[] = [];
  /** False: those that are kept take all the room of `memory:`, and none of them has ended. */
  hasRoom = true;
  #resolveFull: () => void = () => {};
  /** Resolves when an execution has to wait for a slot for the first time. */
  readonly full: Promise<void> = new Promise((resolve) => {
    this.#resolveFull = resolve;
  });

  /** @param refused called whenever there is no slot for a client */
  constructor(limit: number, running: () => number, refused?: () => void) {
    this.#limit = limit;
    this.#running = running;
    this.#refused = refused;
  }

  /** Sets the limit from now on. Running executions are not affected. */
  set limit(limit: number) {
    this.#limit = limit;
    this.slotFreed();
  }

  get #free(): boolean {
    return this.#running() + this.#reserved < this.#limit;
  }

  /**
   * Checks for a free slot for an execution that a client requests: it does not wait, and does not overtake those that do.
   *
   * @throws ServiceError `unavailable`
   */
  requireFree({ isNew = false } = {}): void {
    // One that goes on needs no more room.
    if (isNew && !this.hasRoom)
      throw unavailable("the executions in memory: take all their room, and none has ended: resume or cancel some");
    if (this.#free && this.#waiting.length === 0) return;
    this.#refused?.();
    throw unavailable(`${this.#limit} executions are running, as many as server.limits.executions allows: try again`);
  }

  /** Runs `work`, which may start an execution, as soon as there is a free slot for it. */
  async whenFree<T>(work: () => Promise<T>): Promise<T> {
    if (this.#free) this.#reserved++;
    else {
      this.#resolveFull();
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    }
    try {
      return await work();
    } finally {
      this.#reserved--;
      this.slotFreed();
    }
  }

  /** Must be called when an execution has ended, or will not start after all. */
  slotFreed(): void {
    if (this.#waiting.length === 0 || !this.#free) return;
    this.#reserved++;
    this.#waiting.shift()!();
  }

  /** Lets everything that waits proceed at once, for the shutdown: it checks by itself that nothing may start any more. */
  releaseWaiting(): void {
    for (const proceed of this.#waiting.splice(0)) {
      this.#reserved++;
      proceed();
    }
  }
}
