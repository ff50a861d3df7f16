/** A histogram of durations: plain numbers in one array, so that an observation allocates nothing. */

/** Upper bounds in seconds: the defaults of Prometheus, and longer ones for models. The last bucket is unbounded. */
export const BOUNDS: readonly number[] = [
  0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60,
];

const BOUNDS_IN_MILLISECONDS = Float64Array.from(BOUNDS, (seconds) => seconds * 1000);
const SUM = BOUNDS.length + 1;

/** The index of the bucket for a duration; the last one is for longer durations. */
export function bucketIndex(milliseconds: number): number {
  let bucket = 0;
  while (bucket < BOUNDS_IN_MILLISECONDS.length && milliseconds > BOUNDS_IN_MILLISECONDS[bucket]!) bucket++;
  return bucket;
}

export class Durations {
  /** The count of each bucket, the unbounded one included, followed by the sum in milliseconds. */
  readonly #values = new Float64Array(BOUNDS.length + 2);

  /** @param bucket the result of `bucketIndex`, if it is known already */
  observe(milliseconds: number, bucket: number = bucketIndex(milliseconds)): void {
    this.#values[bucket]!++;
    this.#values[SUM]! += milliseconds;
  }

  /** Cumulative counts, as a histogram is exposed. */
  get cumulative(): number[] {
    let count = 0;
    return [...this.#values.subarray(0, SUM)].map((inBucket) => {
      count += inBucket;
      return count;
    });
  }

  get count(): number {
    return this.cumulative.at(-1)!;
  }

  /** Sum of the durations in seconds. */
  get sum(): number {
    return this.#values[SUM]! / 1000;
  }
}

// Durations of work that is usually so short that reading the clock twice would cost too much.

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
