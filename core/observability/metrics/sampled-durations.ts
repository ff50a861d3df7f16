/** How long things took of which most take next to no time: reading the clock twice costs more than they may. */
import { bucketOf, Durations } from "./durations.ts";

/** What took next to no time and was not timed. */
export const UNTIMED = -1;

/** Of those one in so many is timed: a power of two. */
const SAMPLE_EVERY = 16;

/**
 * Of what is done at once one in sixteen is timed, and stands for those that follow: counts are exact, and the clock costs a
 * sixteenth. What waits for anything is to be timed always.
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
    const bucket = bucketOf(milliseconds);
    this.observe(milliseconds, bucket);
    if (waited) return;
    this.#typical = milliseconds;
    this.#typicalBucket = bucket;
  }
}
