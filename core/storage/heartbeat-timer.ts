/** Says when the next heartbeat of leases is due that are written together with other rows. */
export class HeartbeatTimer {
  readonly #interval: number;
  #last = Number.NEGATIVE_INFINITY;

  /** @param interval milliseconds between two heartbeats */
  constructor(interval: number) {
    this.#interval = interval;
  }

  /** Counts from now: there is nothing to keep alive, or it has just been written. */
  restart(): void {
    this.#last = performance.now();
  }

  /** Whether the interval is over. If so, the next one begins. */
  isDue(): boolean {
    if (performance.now() - this.#last < this.#interval) return false;
    this.restart();
    return true;
  }
}
