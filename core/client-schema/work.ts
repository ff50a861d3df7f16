/** How much may be computed for a stranger's schema. It is counted, not timed: the same everywhere, however busy the machine. */

/** Thrown when a check would cost more than it may. */
export class TooMuchWork extends Error {
  override readonly name = "TooMuchWork";
}

export class WorkBudget {
  readonly #most: number;
  #left: number;

  /** @param most steps, of some 20 to 50 ns each */
  constructor(most: number) {
    this.#most = most;
    this.#left = most;
  }

  /** @throws TooMuchWork */
  spend(steps: number): void {
    this.#left -= steps;
    if (this.#left < 0) throw new TooMuchWork(`it takes more than ${this.#most} steps`);
  }
}
