/** Activity in each of the last sixty minutes, as differences of counters that only grow, so that requests need no further counting. */
import type { Meters } from "./meters.ts";

const MINUTE_MS = 60_000;
const MAX_MINUTES = 60;

interface Totals {
  readonly requests: number;
  readonly failed: number;
  readonly inputTokens: number;
  readonly outputTokens: number;
  /** In US dollars; also 0 when no model has prices. */
  readonly cost: number;
}

/** The activity in one interval. */
interface ActivityMinute extends Totals {
  /** Start of the interval, ISO 8601. */
  readonly from: string;
}

export class RecentActivity {
  readonly #meters: Meters;
  readonly #minutes: ActivityMinute[] = [];
  /** Start of the current minute, and the totals at that time. */
  #from: number;
  #before: Totals;
  #timer: NodeJS.Timeout | null = null;

  constructor(meters: Meters, now = Date.now()) {
    this.#meters = meters;
    this.#from = now;
    this.#before = readTotals(meters);
  }

  start(): void {
    this.#timer ??= setInterval(() => this.turn(Date.now()), MINUTE_MS).unref();
  }

  stop(): void {
    if (this.#timer !== null) clearInterval(this.#timer);
    this.#timer = null;
  }

  /** Ends the current minute, and starts the next one. */
  turn(now: number): void {
    const totals = readTotals(this.#meters);
    this.#minutes.push(this.#since(totals));
    if (this.#minutes.length >= MAX_MINUTES) this.#minutes.shift();
    this.#from = now;
    this.#before = totals;
  }

  /** The oldest first. The last one is the current, incomplete minute. */
  get minutes(): ActivityMinute[] {
    return [...this.#minutes, this.#since(readTotals(this.#meters))];
  }

  #since(totals: Totals): ActivityMinute {
    const before = this.#before;
    return {
      from: new Date(this.#from).toISOString(),
      requests: totals.requests - before.requests,
      failed: totals.failed - before.failed,
      inputTokens: totals.inputTokens - before.inputTokens,
      outputTokens: totals.outputTokens - before.outputTokens,
      cost: totals.cost - before.cost,
    };
  }
}

/** Counts requests that do something: reads are left out, among them those of an open console and of probes. */
function readTotals({ routes, models }: Meters): Totals {
  const totals = { requests: 0, failed: 0, inputTokens: 0, outputTokens: 0, cost: 0 };
  for (const { method, operation, statuses } of routes) {
    if (method === "GET" && !operation.startsWith("custom.")) continue;
    for (const status of statuses.outcomes) totals.requests += statuses.of(status);
    totals.failed += statuses.of("5xx");
  }
  for (const [, { inputTokens, outputTokens, cost = 0 }] of models.entries) {
    totals.inputTokens += inputTokens;
    totals.outputTokens += outputTokens;
    totals.cost += cost;
  }
  return totals;
}
