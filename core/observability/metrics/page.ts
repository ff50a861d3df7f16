/** The text of `/metrics`, and recent activity. prom-client is loaded with the first request. */
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

type RecentActivity = ReturnType<typeof createRecentActivity>;

/** Activity in each of the last sixty minutes, as differences of counters that only grow, so that requests need no further counting. */
export function createRecentActivity(meters: Meters, now = Date.now()) {
  const minutes: ActivityMinute[] = [];
  let timer: NodeJS.Timeout | null = null;
  /** Start of the current minute, and the totals at that time. */
  let from: number = now;
  let last: Totals = readTotals(meters);

  function start(): void {
    timer ??= setInterval(() => turn(Date.now()), MINUTE_MS).unref();
  }

  function stop(): void {
    if (timer !== null) clearInterval(timer);
    timer = null;
  }

  /** Ends the current minute, and starts the next one. */
  function turn(now: number): void {
    const totals = readTotals(meters);
    minutes.push(since(totals));
    if (minutes.length >= MAX_MINUTES) minutes.shift();
    from = now;
    last = totals;
  }

  function since(totals: Totals): ActivityMinute {
    const before = last;
    return {
      from: new Date(from).toISOString(),
      requests: totals.requests - before.requests,
      failed: totals.failed - before.failed,
      inputTokens: totals.inputTokens - before.inputTokens,
      outputTokens: totals.outputTokens - before.outputTokens,
      cost: totals.cost - before.cost,
    };
  }

  return {
    /** The oldest first. The last one is the current, incomplete minute. */
    get minutes(): ActivityMinute[] {
      return [...minutes, since(readTotals(meters))];
    },
    start,
    stop,
    turn,
  };
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

export class MetricsPage {
  readonly #meters: Meters;
  readonly activity: RecentActivity;
  #text: Promise<() => Promise<string>> | null = null;

  constructor(meters: Meters) {
    this.#meters = meters;
    this.activity = createRecentActivity(meters);
  }

  async text(): Promise<string> {
    this.#text ??= import("./exposition.ts").then(({ createExposition }) => createExposition(this.#meters));
    return (await this.#text)();
  }

  /** Must be called when numbers were added or removed: the page is rebuilt with the next request. */
  renew(): void {
    this.#text = null;
  }

  close(): void {
    this.activity.stop();
  }
}
