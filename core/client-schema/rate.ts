/** Limits how many bytes of new schemas one caller may send. Cached schemas cost nothing. */
import { rateLimited } from "../lib/errors.ts";

/** Limit for one caller within one period. */
const MAX_BYTES_PER_PERIOD = 4 * 1024 * 1024;
const PERIOD_MS = 60_000;
/** Most callers that are tracked; above this, those with the oldest periods are dropped. */
const MAX_CALLERS = 10_000;

export class SchemaRateLimit {
  /** Callers in the order in which their periods started. */
  readonly #callers = new Map<string, { since: number; bytes: number }>();
  readonly #now: () => number;

  /** @param now a monotonic clock in milliseconds */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  /** @throws ServiceError `rate_limited` */
  spend(caller: string, bytes: number): void {
    const now = this.#now();
    for (const [oldest, { since }] of this.#callers) {
      if (now - since < PERIOD_MS && this.#callers.size <= MAX_CALLERS) break;
      this.#callers.delete(oldest);
    }
    const spent = this.#callers.get(caller);
    if (spent === undefined) {
      this.#callers.set(caller, { since: now, bytes });
      return;
    }
    if (spent.bytes + bytes > MAX_BYTES_PER_PERIOD) {
      const wait = Math.max(1, Math.ceil((spent.since + PERIOD_MS - now) / 1000));
      throw rateLimited("too many new schemas: reuse schemas that you have sent before, or wait", wait);
    }
    spent.bytes += bytes;
  }
}
