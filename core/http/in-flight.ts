/**
 * The requests that are being answered, and one clock for all their time limits instead of a timer per request. The entries form a linked
 * list, so that adding and removing cost next to nothing.
 */
import { within } from "../lib/abortable.ts";

const TICK_INTERVAL_MS = 250;

export interface InFlightRequest {
  previous: InFlightRequest | null;
  next: InFlightRequest | null;
  /** Called about four times a second, with milliseconds since the start of the clock. */
  tick(now: number): void;
  /** Ends the request: the server is stopping and waits no longer. */
  abandon(): void;
}

export class InFlight {
  #first: InFlightRequest | null = null;
  #size = 0;
  #timer: NodeJS.Timeout;
  #drainWaiters: (() => void)[] = [];
  /** Number of requests that are being answered with a stream. */
  streams = 0;
  /** Time of the last tick: accurate to a quarter of a second, and free to read. */
  now = 0;

  /** @param onTick called with each tick */
  constructor(onTick: () => void = () => {}) {
    this.#timer = setInterval(() => {
      this.#tick();
      onTick();
    }, TICK_INTERVAL_MS);
    this.#timer.unref();
  }

  get size(): number {
    return this.#size;
  }

  add(entry: InFlightRequest): void {
    entry.next = this.#first;
    if (this.#first !== null) this.#first.previous = entry;
    this.#first = entry;
    this.#size++;
  }

  remove(entry: InFlightRequest): void {
    if (entry.previous !== null) entry.previous.next = entry.next;
    else if (this.#first === entry) this.#first = entry.next;
    else return;
    if (entry.next !== null) entry.next.previous = entry.previous;
    entry.previous = null;
    entry.next = null;
    if (--this.#size === 0 && this.#drainWaiters.length > 0)
      for (const resolve of this.#drainWaiters.splice(0)) resolve();
  }

  /** Waits until nothing is in flight, at most `timeout` milliseconds; then abandons the requests that are left. */
  async drain(timeout: number): Promise<void> {
    if (this.#size === 0) return;
    await within(timeout, new Promise<void>((resolve) => this.#drainWaiters.push(resolve)));
    this.#each((entry) => entry.abandon());
  }

  close(): void {
    clearInterval(this.#timer);
  }

  #tick(): void {
    this.now += TICK_INTERVAL_MS;
    this.#each((entry) => entry.tick(this.now));
  }

  #each(visit: (entry: InFlightRequest) => void): void {
    let entry = this.#first;
    while (entry !== null) {
      const { next } = entry;
      visit(entry);
      entry = next;
    }
  }
}
