/** How many bytes of new schemas one caller may send: what is known costs nothing, what is new is read and kept. */
import { ServiceError } from "../lib/errors.ts";

/** Bytes of one caller within one period, in milliseconds. */
const MOST = 4 * 1024 * 1024;
const PERIOD = 60_000;
/** Callers that are remembered; when there are more, the first is forgotten. */
const MOST_CALLERS = 10_000;

export class SchemaRate {
  /** In the order in which their periods began. */
  readonly #callers = new Map<string, { since: number; bytes: number }>();
  readonly #now: () => number;

  /** @param now milliseconds that never go back */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  /** @throws ServiceError `rate_limited` */
  spend(caller: string, bytes: number): void {
    const now = this.#now();
    for (const [oldest, { since }] of this.#callers) {
      if (now - since < PERIOD && this.#callers.size <= MOST_CALLERS) break;
      this.#callers.delete(oldest);
    }
    const spent = this.#callers.get(caller);
    if (spent === undefined) {
      this.#callers.set(caller, { since: now, bytes });
      return;
    }
    if (spent.bytes + bytes > MOST) {
      const wait = Math.max(1, Math.ceil((spent.since + PERIOD - now) / 1000));
      throw new ServiceError("rate_limited", "too many new schemas: send those that you have sent before, or wait", {
        headers: { "retry-after": String(wait) },
      });
    }
    spent.bytes += bytes;
  }
}
