/** What happens to the history beside writing: runs that a dead process left open, and runs that are too old. */

import { setTimeout as sleep } from "node:timers/promises";
import type { Logger } from "pino";
import { systemTime } from "../../lib/clock.ts";
import { CommitConflict, messageOf } from "../../lib/errors.ts";
import { historyBefore, historyRows, historyTotal, OPEN_RUNS, ownHistoryTotal, ownKeyOf } from "../../storage/keys.ts";
import { isShared } from "../../storage/sharing.ts";
import type { Row, Store } from "../../storage/store.ts";

/** Milliseconds: between two rounds, before the first one, and between two batches of a round. */
const ROUND = 60_000;
const FIRST = 5_000;
const PAUSE = 20;
const BATCH = 100;
/** Milliseconds after its last sign of life that a run of another process is taken for dead. */
const SILENCE = 60_000;

export interface KeeperOptions {
  agents: readonly string[];
  /** Milliseconds. */
  retention: number;
  logger: Logger;
}

export class HistoryKeeper {
  readonly #store: Store;
  readonly #options: KeeperOptions;
  readonly #stop = new AbortController();
  #timer: NodeJS.Timeout | null = null;
  #round: Promise<void> = Promise.resolve();

  constructor(store: Store, options: KeeperOptions) {
    this.#store = store;
    this.#options = options;
  }

  async start(): Promise<void> {
    await this.interrupt(isShared(this.#store) ? Date.now() - SILENCE : Number.POSITIVE_INFINITY);
    this.#arm(FIRST);
  }

  async close(): Promise<void> {
    this.#stop.abort();
    if (this.#timer !== null) clearTimeout(this.#timer);
    await this.#round;
  }

  /** Says of every open run that gave its last sign of life before `silentSince` that it was interrupted. */
  async interrupt(silentSince: number): Promise<void> {
    let after: string | undefined;
    for (;;) {
      const range = { prefix: OPEN_RUNS, limit: BATCH };
      const rows = await this.#store.scan(after === undefined ? range : { ...range, after });
      for (const row of rows) {
        const { key, seen } = JSON.parse(row.value) as { key: string; seen: number };
        if (seen < silentSince) await this.#close(row, key, seen);
      }
      if (rows.length < BATCH) return;
      after = rows.at(-1)!.key;
    }
  }

  async #close(open: Row, key: string, seen: number): Promise<void> {
    const row = await this.#store.get(key);
    const put: [string, string][] = [];
    if (row !== undefined) {
      const entry = JSON.parse(row.value) as Record<string, unknown>;
      if (entry.status === "running") {
        const over = { ...entry, status: "error", endTime: new Date(seen).toISOString(), error: "interrupted" };
        put.push([key, JSON.stringify(over)]);
      }
    }
    await unlessLost(this.#store.commit({ put, delete: [open.key], expect: [[open.key, open.revision]] }));
  }

  /** Deletes what began before `time` (milliseconds since 1970), a few runs at a time. */
  async forget(time: number): Promise<void> {
    for (const agent of this.#options.agents) {
      for (;;) {
        const rows = await this.#store.scan({
          prefix: historyRows(agent),
          before: historyBefore(agent, time),
          limit: BATCH,
        });
        if (rows.length > 0) {
          const own = await this.#own(agent, rows);
          const add: [string, number][] = [[historyTotal(agent), -rows.length], ...own.totals];
          // Two processes that forget at once must not count a run twice.
          const expect = rows.map((row): [string, number] => [row.key, row.revision]);
          const keys = [...rows.map((row) => row.key), ...own.keys];
          await unlessLost(this.#store.commit({ delete: keys, add, expect }));
        }
        if (rows.length < BATCH || this.#stop.signal.aborted) break;
        await sleep(PAUSE);
      }
    }
  }

  /** What stands beside these runs as those of users, and how many of each user there are. Most stores have none. */
  async #own(agent: string, rows: readonly Row[]): Promise<{ keys: string[]; totals: Map<string, number> }> {
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

  #arm(delay: number): void {
    if (this.#stop.signal.aborted) return;
    this.#timer = setTimeout(() => {
      this.#round = this.#work().finally(() => this.#arm(ROUND));
    }, delay);
    this.#timer.unref();
  }

  async #work(): Promise<void> {
    try {
      if (isShared(this.#store)) await this.interrupt(Date.now() - SILENCE);
      await this.forget(Math.max(0, systemTime() - this.#options.retention));
    } catch (error) {
      this.#options.logger.warn({ err: error }, `the history could not be looked through: ${messageOf(error)}`);
    }
  }
}

/** Another process was first: it has done the same. */
async function unlessLost(commit: Promise<unknown>): Promise<void> {
  try {
    await commit;
  } catch (error) {
    if (!(error instanceof CommitConflict)) throw error;
  }
}
