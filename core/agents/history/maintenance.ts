/** Background work on the stored history: closes runs of dead processes, and deletes runs that are too old. */
import { setTimeout as sleep } from "node:timers/promises";
import type { Logger } from "pino";
import { systemTime } from "../../lib/clock.ts";
import { CommitConflict, messageOf } from "../../lib/errors.ts";
import { historyBefore, historyRows, historyTotal, OPEN_RUNS, ownHistoryTotal, ownKeyOf } from "../../storage/keys.ts";
import { isShared } from "../../storage/sharing.ts";
import type { Row, Store } from "../../storage/store.ts";

const INTERVAL_MS = 60_000;
const FIRST_ROUND_DELAY_MS = 5_000;
/** Between two batches, so that deleting does not keep the store busy. */
const BATCH_PAUSE_MS = 20;
const BATCH_ROWS = 100;
/** A run of another process is closed when its last heartbeat is older than this. */
const LEASE_TIMEOUT_MS = 60_000;

interface HistoryMaintenanceOptions {
  agents: readonly string[];
  /** Milliseconds. */
  retention: number;
  logger: Logger;
}

export class HistoryMaintenance {
  readonly #store: Store;
  readonly #options: HistoryMaintenanceOptions;
  readonly #stop = new AbortController();
  #timer: NodeJS.Timeout | null = null;
  #round: Promise<void> = Promise.resolve();

  constructor(store: Store, options: HistoryMaintenanceOptions) {
    this.#store = store;
    this.#options = options;
  }

  async start(): Promise<void> {
    await this.closeOrphanedRuns(isShared(this.#store) ? Date.now() - LEASE_TIMEOUT_MS : Number.POSITIVE_INFINITY);
    this.#schedule(FIRST_ROUND_DELAY_MS);
  }

  async close(): Promise<void> {
    this.#stop.abort();
    if (this.#timer !== null) clearTimeout(this.#timer);
    await this.#round;
  }

  /** Marks every open run whose last heartbeat was before `time` (milliseconds since 1970) as interrupted. */
  async closeOrphanedRuns(time: number): Promise<void> {
    let after: string | undefined;
    for (;;) {
      const range = { prefix: OPEN_RUNS, limit: BATCH_ROWS };
      const rows = await this.#store.scan(after === undefined ? range : { ...range, after });
      for (const row of rows) {
        const { key, seen } = JSON.parse(row.value) as { key: string; seen: number };
        if (seen < time) await this.#closeRun(row, key, seen);
      }
      if (rows.length < BATCH_ROWS) return;
      after = rows.at(-1)!.key;
    }
  }

  async #closeRun(open: Row, key: string, seen: number): Promise<void> {
    const row = await this.#store.get(key);
    const put: [string, string][] = [];
    if (row !== undefined) {
      const entry = JSON.parse(row.value) as Record<string, unknown>;
      if (entry.status === "running") {
        const closed = { ...entry, status: "error", endTime: new Date(seen).toISOString(), error: "interrupted" };
        put.push([key, JSON.stringify(closed)]);
      }
    }
    await ignoreConflict(this.#store.commit({ put, delete: [open.key], expect: [[open.key, open.revision]] }));
  }

  /** Deletes runs that began before `time` (milliseconds since 1970), a batch at a time. */
  async deleteRunsBefore(time: number): Promise<void> {
    for (const agent of this.#options.agents) {
      for (;;) {
        const rows = await this.#store.scan({
          prefix: historyRows(agent),
          before: historyBefore(agent, time),
          limit: BATCH_ROWS,
        });
        if (rows.length > 0) {
          const own = await this.#ownerRows(agent, rows);
          const add: [string, number][] = [[historyTotal(agent), -rows.length], ...own.totals];
          // Two processes may delete the same runs at once: only one of them may correct the totals.
          const expect = rows.map((row): [string, number] => [row.key, row.revision]);
          const keys = [...rows.map((row) => row.key), ...own.keys];
          await ignoreConflict(this.#store.commit({ delete: keys, add, expect }));
        }
        if (rows.length < BATCH_ROWS || this.#stop.signal.aborted) break;
        await sleep(BATCH_PAUSE_MS);
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

  #schedule(delay: number): void {
    if (this.#stop.signal.aborted) return;
    this.#timer = setTimeout(() => {
      this.#round = this.#runRound().finally(() => this.#schedule(INTERVAL_MS));
    }, delay);
    this.#timer.unref();
  }

  async #runRound(): Promise<void> {
    try {
      if (isShared(this.#store)) await this.closeOrphanedRuns(Date.now() - LEASE_TIMEOUT_MS);
      await this.deleteRunsBefore(Math.max(0, systemTime() - this.#options.retention));
    } catch (error) {
      this.#options.logger.warn({ err: error }, `the maintenance of the history failed: ${messageOf(error)}`);
    }
  }
}

/** Ignores a conflict: another process has done the same already. */
async function ignoreConflict(commit: Promise<unknown>): Promise<void> {
  try {
    await commit;
  } catch (error) {
    if (!(error instanceof CommitConflict)) throw error;
  }
}
