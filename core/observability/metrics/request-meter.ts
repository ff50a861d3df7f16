/** What is counted of the requests of one route: all of it is numbers in place, for every request passes here. */
import { bucketOf, Durations } from "./durations.ts";
import { Tally } from "./tally.ts";

/** By the first digit of the status; a client that left before its answer is none of these. */
const STATUSES = ["aborted", "1xx", "2xx", "3xx", "4xx", "5xx"] as const;

/** Status of a request whose client has left. */
const LEFT = 499;

/** What a request took that was answered at once and not timed. */
export const UNTIMED = -1;

/** Of the requests that are answered at once, one in so many is timed: a power of two. */
const TIMED = 16;

export class RequestMeter {
  readonly operation: string;
  /** Template of the path: `/agents/:id`. */
  readonly route: string;
  readonly method: string;
  readonly statuses = new Tally(STATUSES);
  readonly durations = new Durations();
  #turn = 0;
  /** What the last one took that was answered at once and timed. */
  #typical = 0;
  #typicalBucket = 0;

  constructor(operation: string, route: string, method: string) {
    this.operation = operation;
    this.route = route;
    this.method = method;
  }

  /**
   * Whether the request that begins is to be timed from its beginning. Reading the clock twice costs two hundredths of what
   * the cheapest request costs, so that of those that are answered at once one in sixteen is timed and stands for those that
   * follow. Counts are exact, and so is the time of everything that waits for anything.
   */
  begin(): boolean {
    return (this.#turn++ & (TIMED - 1)) === 0;
  }

  /**
   * @param milliseconds what it took, or `UNTIMED`
   * @param waited whether it was not answered at once
   */
  finished(status: number, milliseconds: number, waited: boolean): void {
    this.statuses.countAt(status === LEFT ? 0 : Math.trunc(status / 100));
    if (milliseconds === UNTIMED) {
      this.durations.observe(this.#typical, this.#typicalBucket);
      return;
    }
    const bucket = bucketOf(milliseconds);
    this.durations.observe(milliseconds, bucket);
    if (waited) return;
    this.#typical = milliseconds;
    this.#typicalBucket = bucket;
  }
}
