/**
 * The tasks that run in this process, where other processes use the store too: their heartbeats are written, and what other
 * processes did to them is noticed.
 */
import type { Logger } from "pino";
import { messageOf } from "../lib/errors.ts";
import { Interval } from "../lib/interval.ts";
import { OPEN_TASKS, openTaskKey, taskKey } from "../storage/keys.ts";
import { HeartbeatTimer } from "../storage/leases.ts";
import { type TaskRows, taskLeaseText } from "./task-rows.ts";
import type { TaskRun } from "./task-run.ts";

const POLL_INTERVAL_MS = 1_000;
const HEARTBEAT_INTERVAL_MS = 10_000;

interface TaskHeartbeatsOptions {
  readonly logger: Logger;
  /** Milliseconds between two looks at the rows; default: 1,000. */
  readonly pollInterval?: number | undefined;
  /** Another process has changed the row of a task that runs here. */
  lost(run: TaskRun): void;
}

export class TaskHeartbeats {
  readonly #rows: TaskRows;
  readonly #runs: ReadonlyMap<string, TaskRun>;
  readonly #options: TaskHeartbeatsOptions;
  readonly #polls: Interval;
  readonly #heartbeats = new HeartbeatTimer(HEARTBEAT_INTERVAL_MS);
  #started = false;
  #endWatch: (() => void) | undefined;

  constructor(rows: TaskRows, runs: ReadonlyMap<string, TaskRun>, options: TaskHeartbeatsOptions) {
    this.#rows = rows;
    this.#runs = runs;
    this.#options = options;
    this.#polls = new Interval(
      options.pollInterval ?? POLL_INTERVAL_MS,
      () => this.#poll(),
      (error) => options.logger.warn({ err: error }, `tasks could not be looked at: ${messageOf(error)}`),
    );
  }

  /** Called with every task that starts. Before the first one there is nothing to look at. */
  begin(): void {
    if (this.#started) return;
    this.#started = true;
    this.#heartbeats.restart();
    this.#endWatch = this.#rows.store.watch?.(OPEN_TASKS, () => this.#polls.hurry());
    this.#polls.start();
  }

  stop(): Promise<void> {
    this.#endWatch?.();
    return this.#polls.stop();
  }

  async #poll(): Promise<void> {
    // The row of a task that has just begun is its first heartbeat.
    if (this.#runs.size === 0) this.#heartbeats.restart();
    const runs = [...this.#runs.values()].filter(({ ending, revision }) => ending === null && revision !== -1);
    if (runs.length === 0) return;
    const keys = runs.map(({ record }) => taskKey(record.agent, record.task.id));
    // Only their revisions: a task may be large.
    const rows = await this.#rows.store.getMany(keys, 0);
    for (const [index, run] of runs.entries()) if (rows[index]?.revision !== run.revision) this.#options.lost(run);
    if (!this.#heartbeats.isDue()) return;
    await this.#rows.store.commit({
      put: runs.map(({ record }) => [openTaskKey(record.task.id), taskLeaseText(record.agent, Date.now())]),
    });
  }
}
