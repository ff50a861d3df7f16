/** Counts the requests of one route. Runs for every request, so it only changes numbers in place. */
import { SampledDurations } from "./sampled-durations.ts";
import { Tally } from "./tally.ts";

/** Outcomes by the first digit of the status; `aborted` when the client left before the reply. */
const STATUSES = ["aborted", "1xx", "2xx", "3xx", "4xx", "5xx"] as const;

/** The status that stands for a request whose client has left. */
const CLIENT_CLOSED_REQUEST = 499;

export class RequestMeter {
  readonly operation: string;
  /** Template of the path: `/agents/:id`. */
  readonly route: string;
  readonly method: string;
  readonly statuses = new Tally(STATUSES);
  readonly durations = new SampledDurations();

  constructor(operation: string, route: string, method: string) {
    this.operation = operation;
    this.route = route;
    this.method = method;
  }

  /**
   * @param milliseconds the duration, or `UNTIMED`
   * @param waited whether the reply was asynchronous
   */
  finished(status: number, milliseconds: number, waited: boolean): void {
    this.statuses.countAt(status === CLIENT_CLOSED_REQUEST ? 0 : Math.trunc(status / 100));
    this.durations.ended(milliseconds, waited);
  }
}
