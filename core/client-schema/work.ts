/** Limits the work for a schema from a client. Work is counted, not timed, so that the limit does not depend on the machine. */

/** Thrown when a check takes more work than allowed. */
export class TooMuchWork extends Error {
  override readonly name = "TooMuchWork";
}

export class WorkBudget {
  readonly #limit: number;
  #left: number;

  /** @param limit in steps of about 20 to 50 ns */
  constructor(limit: number) {
    this.#limit = limit;
    this.#left = limit;
  }

  /** @throws TooMuchWork */
  spend(steps: number): void {
    this.#left -= steps;
    if (this.#left < 0) throw new TooMuchWork(`it takes more than ${this.#limit} steps`);
  }
}
