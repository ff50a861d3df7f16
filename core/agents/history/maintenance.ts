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
import type { Membership } from "../../storage/membership.ts";
import { allRows, firstRows, pagesInBackground } from "../../storage/ranges.ts";
import { isShared } from "../../storage/sharing.ts";
import type { Row, Store } from "../../storage/store.ts";

const INTERVAL_MS = 60_000;
const FIRST_ROUND_DELAY_MS = 5_000;
const ROWS_PER_COMMIT = 100;
const LEASES_PER_READ = 1_000;

interface HistoryMaintenanceOptions {
  /** Milliseconds for which runs are kept. */
  retention: number;
  logger: Logger;
  /** The processes that share the store; null when no other process uses it. */
  membership?: Membership | null;
}

/** The lease of a running run: the key of its row, the time of the last heartbeat, and the process that runs it. */
interface RunLease {
  readonly key: string;
  readonly seen: number;
  readonly process?: string | undefined;
}

export const runLeaseText = (key: string, seen: number, process?: string): string =>
  JSON.stringify({ key, seen, process } satisfies RunLease);
const parseRunLease = (value: string): RunLease => JSON.parse(value) as RunLease;

export class HistoryMaintenance {
  readonly #store: Store;
  readonly #options: HistoryMaintenanceOptions;
  readonly #rounds: Interval;
  /** The rounds of closing runs of dead processes, one after the other. */
  #closing = Promise.resolve();

  constructor(store: Store, options: HistoryMaintenanceOptions) {
    this.#store = store;
    this.#options = options;
    this.#rounds = new Interval(
      INTERVAL_MS,
      () => this.#round(),
      (error) => this.#failed(error),
    );
  }

  async start(): Promise<void> {
    // On a store that no other process uses, every open run was interrupted.
    if (isShared(this.#store)) await this.#closeRunsOfGone();
    else await this.closeOrphanedRuns(() => true);
    this.#options.membership?.onGone(() => {
      if (this.#rounds.signal.aborted) return;
      this.#closing = this.#closing.then(() => this.#closeRunsOfGone()).catch((error) => this.#failed(error));
    });
    this.#rounds.start(FIRST_ROUND_DELAY_MS);
  }

  async close(): Promise<void> {
    await this.#rounds.stop();
    await this.#closing;
  }

  /** Marks every open run whose process is dead as interrupted. */
  async closeOrphanedRuns(isGone: (process: string) => boolean | Promise<boolean>): Promise<void> {
    for await (const leases of allRows(this.#store, { prefix: OPEN_RUNS }, LEASES_PER_READ)) {
      for (const lease of leases) {
        const { key, seen, process = "" } = parseRunLease(lease.value);
        if (this.#rounds.signal.aborted) return;
        if (await isGone(process)) await this.#closeRun(lease, key, seen);
      }
    }
  }

  async #closeRunsOfGone(): Promise<void> {
    const { membership } = this.#options;
    if (membership != null) await this.closeOrphanedRuns(membership.goneCheck());
  }

  #failed(error: unknown): void {
    this.#options.logger.warn({ err: error }, `the maintenance of the history failed: ${messageOf(error)}`);
  }

  async #closeRun(lease: Row, key: string, seen: number): Promise<void> {
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

  /** Deletes runs that started before `time` (milliseconds since 1970), a page at a time, including those of undeclared agents. */
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

  /** The keys of these runs in the index by user, and the number of runs of each user. Most stores have none. */
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
    await this.#closeRunsOfGone();
    await this.deleteRunsBefore(Math.max(0, systemTime() - this.#options.retention));
  }
}
