/** The clock of spans: milliseconds since 1970 with fractions, monotonic within a process. */

import { systemTime } from "../lib/clock.ts";

/** How often the system clock is read again, because it may be set while the process runs. */
const SYNC_INTERVAL_MS = 60_000;

export class SpanClock {
  #offset = 0;
  #next = Number.NEGATIVE_INFINITY;

  now(): number {
    const now = performance.now();
    if (now >= this.#next) {
      this.#next = now + SYNC_INTERVAL_MS;
      this.#offset = systemTime() - now;
    }
    return now + this.#offset;
  }
}
