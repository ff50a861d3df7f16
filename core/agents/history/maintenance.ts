/** Background work on the stored history: closes runs of dead processes, and deletes runs that are too old. */
import type { Logger } from "pino";
import { systemTime } from "../../lib/clock.ts";
import { messageOf } from "../../lib/errors.ts";
import { Interval } from "../../lib/interval.ts";
import { unlessConflict } from "../../storage/conflict.ts";
import {
  agentOfHistory,
  HISTORIES,
  historyBefore,
  historyEnd,
  historyRows,
  historyTotal,
  OPEN_RUNS,
  ownHistoryTotal,
  ownKeyOf,
} from "../../storage/keys.ts";
import { Leases, type LeaseTimeout, NO_TIMEOUT } from "../../storage/leases.ts";
import { firstRows, pagesInBackground } from "../../storage/ranges.ts";
import { isShared } from "../../storage/sharing.ts";
import type { Row, Store } from "../../storage/store.ts";

const INTERVAL_MS = 60_000;
const FIRST_ROUND_DELAY_MS = 5_000;
const ROWS_PER_COMMIT = 100;
const LEASE_TIMEOUT: LeaseTimeout = { sinceHeartbeat: 60_000, unchanged: 0 };

interface HistoryMaintenanceOptions {
  /** Milliseconds. */
  retention: number;
  logger: Logger;
}

/** The lease of a run: the key of its row, and when its last heartbeat was. */
interface RunLease {
  readonly key: string;
  readonly seen: number;
}

export const runLeaseText = (key: string, seen: number): string => JSON.stringify({ key, seen } satisfies RunLease);
const parseRunLease = (value: string): RunLease => JSON.parse(value) as RunLease;

export class HistoryMaintenance {
  readonly #store: Store;
  readonly #options: HistoryMaintenanceOptions;
  readonly #leases: Leases;
  readonly #rounds: Interval;

  constructor(store: Store, options: HistoryMaintenanceOptions) {
    this.#store = store;
    this.#options = options;
    this.#leases = new Leases(store, { prefix: OPEN_RUNS, readTime: (value) => parseRunLease(value).seen });
    this.#rounds = new Interval(
      INTERVAL_MS,
      () => this.#round(),
      (error) => options.logger.warn({ err: error }, `the maintenance of the history failed: ${messageOf(error)}`),
    );
  }

  async start(): Promise<void> {
    await this.closeOrphanedRuns(isShared(this.#store) ? LEASE_TIMEOUT : NO_TIMEOUT);
    this.#rounds.start(FIRST_ROUND_DELAY_MS);
  }

  close(): Promise<void> {
    return this.#rounds.stop();
  }

  /** Marks every open run whose lease has run out as interrupted. */
  async closeOrphanedRuns(timeout: LeaseTimeout): Promise<void> {
    for await (const lease of this.#leases.expired(timeout)) await this.#closeRun(lease);
  }

  async #closeRun(lease: Row): Promise<void> {
    const { key, seen } = parseRunLease(lease.value);
    const row = await this.#store.get(key);
    const put: [string, string][] = [];
    if (row !== undefined) {
      const entry = JSON.parse(row.value) as Record<string, unknown>;
      if (entry.status === "running") {
        const closed = { ...entry, status: "error", endTime: new Date(seen).toISOString(), error: "interrupted" };
        put.push([key, JSON.stringify(closed)]);
      }
    }
    await unlessConflict(this.#store.commit({ put, delete: [lease.key], expect: [[lease.key, lease.revision]] }));
  }

  /** Deletes runs that began before `time` (milliseconds since 1970), a page at a time: also those of agents that are no longer declared. */
  async deleteRunsBefore(time: number): Promise<void> {
    const firstOfAgents = firstRows(this.#store, HISTORIES, ({ key }) => historyEnd(agentOfHistory(key)));
    for await (const { key } of firstOfAgents) {
      if (this.#rounds.signal.aborted) return;
      const agent = agentOfHistory(key);
      const range = { prefix: historyRows(agent), before: historyBefore(agent, time) };
      for await (const rows of pagesInBackground(this.#store, range, ROWS_PER_COMMIT, this.#rounds.signal)) {
        const own = await this.#ownerRows(agent, rows);
        const add: [string, number][] = [[historyTotal(agent), -rows.length], ...own.totals];
        // Two processes may delete the same runs at once: only one of them may correct the totals.
        const expect = rows.map((row): [string, number] => [row.key, row.revision]);
        const keys = [...rows.map((row) => row.key), ...own.keys];
        await unlessConflict(this.#store.commit({ delete: keys, add, expect }));
      }
    }
  }

  /** The index rows of these runs by user, and how many runs of each user there are. Most stores have none. */
  async #ownerRows(agent: string, rows: readonly Row[]): Promise<{ keys: string[]; totals: Map<string, number> }> {
    const owners = new Map<string, string>();
    for (const { key, value } of rows) {
      const { userId = "" } = JSON.parse(value) as { userId?: string };
      owners.set(ownKeyOf(agent, userId, key), userId);
    }
    const found = (await this.#store.getMany([...owners.keys()])).filter((row) => row !== undefined);
    const totals = new Map<string, number>();
    for (const { key } of found) {
      const total = ownHistoryTotal(agent, owners.get(key)!);
      totals.set(total, (totals.get(total) ?? 0) - 1);
    }
    return { keys: found.map(({ key }) => key), totals };
  }

  async #round(): Promise<void> {
    if (isShared(this.#store)) await this.closeOrphanedRuns(LEASE_TIMEOUT);
    await this.deleteRunsBefore(Math.max(0, systemTime() - this.#options.retention));
  }
}
