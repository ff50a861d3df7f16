/** A histogram of durations: plain numbers in one array, so that an observation allocates nothing. */

/** Upper bounds in seconds: the defaults of Prometheus, and longer ones for models. The last bucket has no bound. */
export const BOUNDS: readonly number[] = [
  0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60,
];

const BOUNDS_IN_MILLISECONDS = Float64Array.from(BOUNDS, (seconds) => seconds * 1000);
const SUM = BOUNDS.length + 1;

/** The place of a duration among the bounds; that after the last is for what is longer. */
export function bucketIndex(milliseconds: number): number {
  let bucket = 0;
  while (bucket < BOUNDS_IN_MILLISECONDS.length && milliseconds > BOUNDS_IN_MILLISECONDS[bucket]!) bucket++;
  return bucket;
}

export class Durations {
  /** How many in each bucket, the endless one included; behind them the sum in milliseconds. */
  readonly #values = new Float64Array(BOUNDS.length + 2);

  /** @param bucket what `bucketOf` gives, where it is at hand */
  observe(milliseconds: number, bucket: number = bucketIndex(milliseconds)): void {
    this.#values[bucket]!++;
    this.#values[SUM]! += milliseconds;
  }

  /** Observations up to each bound, and up to the end: as a histogram is exposed. */
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

  /** Seconds. */
  get sum(): number {
    return this.#values[SUM]! / 1000;
  }
}
