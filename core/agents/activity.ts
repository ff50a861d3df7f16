/** Which agents are at work, so that lists can say so without being built anew for each request. */

/** Counts every change of any agent's status: what was built at the same count is still true. */
export interface Changes {
  count: number;
}

export class Activity {
  readonly #changes: Changes;
  #running = 0;

  constructor(changes: Changes) {
    this.#changes = changes;
  }

  get status(): "idle" | "working" {
    return this.#running > 0 ? "working" : "idle";
  }

  enter(): void {
    if (this.#running++ === 0) this.#changes.count++;
  }

  leave(): void {
    if (--this.#running === 0) this.#changes.count++;
  }
}
