/** Lets any number of callers wait for an event, each until its own signal aborts or its time is up. */
export class Waiters {
  readonly #all = new Set<Waiter>();

  /** @param milliseconds how long to wait at most; default: no limit */
  wait(signal: AbortSignal, milliseconds?: number): Promise<void> {
    if (signal.aborted) return Promise.resolve();
    return new Promise((resolve) => new Waiter(this.#all, signal, milliseconds, resolve));
  }

  wake(): void {
    for (const waiter of this.#all) waiter.handleEvent();
  }
}

/** One waiting caller. Removes its timer and its listener when it ends, in whatever way. */
class Waiter {
  readonly #all: Set<Waiter>;
  readonly #signal: AbortSignal;
  readonly #timer: NodeJS.Timeout | undefined;
  readonly #resolve: () => void;

  constructor(all: Set<Waiter>, signal: AbortSignal, milliseconds: number | undefined, resolve: () => void) {
    this.#all = all;
    this.#signal = signal;
    this.#resolve = resolve;
    all.add(this);
    signal.addEventListener("abort", this);
    if (milliseconds !== undefined) this.#timer = setTimeout(wake, milliseconds, this);
  }

  handleEvent(): void {
    this.#all.delete(this);
    this.#signal.removeEventListener("abort", this);
    clearTimeout(this.#timer);
    this.#resolve();
  }
}

function wake(waiter: Waiter): void {
  waiter.handleEvent();
}
