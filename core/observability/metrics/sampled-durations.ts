/** Durations of work that mostly takes next to no time, so that reading the clock twice would cost too much. */
import { bucketIndex, Durations } from "./durations.ts";

/** The duration of work that was done at once and not timed. */
export const UNTIMED = -1;

/** One in this many is timed. Must be a power of two. */
const SAMPLE_EVERY = 16;

/**
 * Of the work that is done at once, one in sixteen is timed, and its duration stands for those that follow: counts are exact, and
 * the clock costs a sixteenth. Work that waits for something is always timed.
 */
export class SampledDurations extends Durations {
  #turn = 0;
  /** What the last one took that was done at once and timed. */
  #typical = 0;
  #typicalBucket = 0;

  /** Whether what begins now is to be timed, although it may be done at once. */
  begin(): boolean {
    return (this.#turn++ & (SAMPLE_EVERY - 1)) === 0;
  }

  /**
   * @param milliseconds what it took, or `UNTIMED`
   * @param waited whether it was not done at once
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
