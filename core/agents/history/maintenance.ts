/** Background work on the stored history: closes runs of dead processes, and deletes runs that are too old. */
import type { Logger } from "pino";
import { systemTime } from "../../lib/clock.ts";
import { messageOf } from "../../lib/errors.ts";
import { Interval } from "../../lib/interval.ts";
import { unlessConflict } from "../../storage/conflict.ts";
import { encodeNumber } from "../../storage/encoding.ts";
import type { Membership } from "../../storage/membership.ts";
import { Orphans } from "../../storage/orphans.ts";
import { groupsBelow, pagesInBackground } from "../../storage/ranges.ts";
import type { Row, Store } from "../../storage/store.ts";
import { HISTORIES, OPEN_RUNS, runRows, runTotal } from "./history.ts";

const INTERVAL_MS = 60_000;
const FIRST_ROUND_DELAY_MS = 5_000;
const ROWS_PER_COMMIT = 100;

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
const parseRunLease = (row: Row): RunLease => JSON.parse(row.value) as RunLease;

export class HistoryMaintenance {
  readonly #store: Store;
  /** The runs that processes have left. */
  readonly orphans: Orphans;
  readonly #rounds: Interval;

  constructor(store: Store, options: HistoryMaintenanceOptions) {
    this.#store = store;
    const failed = (error: unknown) =>
      options.logger.warn({ err: error }, `the maintenance of the history failed: ${messageOf(error)}`);
    this.orphans = new Orphans({
      store,
      membership: options.membership ?? null,
      prefix: OPEN_RUNS,
      processOf: (lease) => parseRunLease(lease).process ?? "",
      end: (lease) => this.#closeRun(lease),
      failed,
    });
    this.#rounds = new Interval(
      INTERVAL_MS,
      async () => {
        await this.orphans.look();
        await this.deleteRunsBefore(Math.max(0, systemTime() - options.retention));
      },
      failed,
    );
  }

  async start(): Promise<void> {
    await this.orphans.start();
    this.#rounds.start(FIRST_ROUND_DELAY_MS);
  }

  async close(): Promise<void> {
    const closed = this.orphans.close();
    await this.#rounds.stop();
    await closed;
  }

  /** Marks an open run as interrupted. */
  async #closeRun(lease: Row): Promise<void> {
    const { key, seen } = parseRunLease(lease);
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
    const { signal } = this.#rounds;
    for await (const prefix of groupsBelow(this.#store, HISTORIES)) {
      const range = { prefix, before: prefix + encodeNumber(time) };
      for await (const rows of pagesInBackground(this.#store, range, ROWS_PER_COMMIT, signal)) {
        const own = await this.#ownRows(prefix, rows);
        const totals = new Map([[runTotal(prefix), -rows.length]]);
        for (const total of own.values()) totals.set(total, (totals.get(total) ?? 0) - 1);
        // Two processes may delete the same runs at once: only one of them may correct the totals.
        const expect = rows.map((row): [string, number] => [row.key, row.revision]);
        const keys = [...rows.map((row) => row.key), ...own.keys()];
        await unlessConflict(this.#store.commit({ delete: keys, add: [...totals], expect }));
      }
      if (signal.aborted) return;
    }
  }

  /** The keys of these runs in the index by user, and the counter of each. Most stores have none. */
  async #ownRows(prefix: string, rows: readonly Row[]): Promise<Map<string, string>> {
    const agent = prefix.split("/")[1]!;
    const totals = new Map<string, string>();
    for (const { key, value } of rows) {
      const own = runRows(agent, (JSON.parse(value) as { userId?: string }).userId ?? "");
      totals.set(own + key.slice(prefix.length), runTotal(own));
    }
    const found = await this.#store.getMany([...totals.keys()]);
    return new Map(found.flatMap((row) => (row === undefined ? [] : [[row.key, totals.get(row.key)!]])));
  }
}
