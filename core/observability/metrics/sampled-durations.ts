/** Durations of work that is usually so short that reading the clock twice would cost too much. */
import { bucketIndex, Durations } from "./durations.ts";

/** The duration of synchronous work that was not timed. */
export const UNTIMED = -1;

/** One in this many is timed. Must be a power of two. */
const SAMPLE_EVERY = 16;

/**
 * Of synchronous work one in sixteen is timed, and its duration stands for those that follow: counts are exact, and the clock costs a
 * sixteenth. Work that waits for something is always timed.
 */
export class SampledDurations extends Durations {
  #turn = 0;
  /** The last timed duration of synchronous work. */
  #typical = 0;
  #typicalBucket = 0;

  /** Whether to time the work that starts now, even if it turns out to be synchronous. */
  begin(): boolean {
    return (this.#turn++ & (SAMPLE_EVERY - 1)) === 0;
  }

  /**
   * @param milliseconds the duration, or `UNTIMED`
   * @param waited whether the work was asynchronous
   */
  ended(milliseconds: number, waited: boolean): void {
    if (milliseconds === UNTIMED) {
      this.observe(this.#typical, this.#typicalBucket);
      return;
    }
    const bucket = bucketIndex(milliseconds);
    this.observe(milliseconds, bucket);
    if (waited) return;
    this.#typical = milliseconds;
    this.#typicalBucket = bucket;
  }
}
