/** The tasks that run in this process of a shared store: notices what other processes do to them. */
import type { Logger } from "pino";
import { messageOf } from "../lib/errors.ts";
import { Interval } from "../lib/interval.ts";
import { OPEN_TASKS, taskKey } from "../storage/keys.ts";
import type { TaskRows } from "./task-rows.ts";
import type { TaskRun } from "./task-run.ts";

const POLL_INTERVAL_MS = 1_000;

interface RunningTasksOptions {
  readonly logger: Logger;
  /** Milliseconds between two reads of the rows; default: 1,000. */
  readonly pollInterval?: number | undefined;
  /** Another process has changed the row of a task that runs here. */
  lost(run: TaskRun): void;
}

export class RunningTasks {
  readonly #rows: TaskRows;
  readonly #runs: ReadonlyMap<string, TaskRun>;
  readonly #options: RunningTasksOptions;
  readonly #polls: Interval;
  #started = false;
  #endWatch: (() => void) | undefined;

  constructor(rows: TaskRows, runs: ReadonlyMap<string, TaskRun>, options: RunningTasksOptions) {
    this.#rows = rows;
    this.#runs = runs;
    this.#options = options;
    this.#polls = new Interval(
      options.pollInterval ?? POLL_INTERVAL_MS,
      () => this.#poll(),
      (error) => options.logger.warn({ err: error }, `tasks could not be looked at: ${messageOf(error)}`),
    );
  }

  /** Called with every task that starts. Before the first one there is nothing to poll. */
  begin(): void {
    if (this.#started) return;
    this.#started = true;
    this.#endWatch = this.#rows.store.watch?.(OPEN_TASKS, () => this.#polls.hurry());
    this.#polls.start();
  }

  stop(): Promise<void> {
    this.#endWatch?.();
    return this.#polls.stop();
  }

  async #poll(): Promise<void> {
    const runs = [...this.#runs.values()].filter(({ ending, revision }) => ending === null && revision !== -1);
    if (runs.length === 0) return;
    const keys = runs.map(({ record }) => taskKey(record.agent, record.task.id));
    // Reads only revisions, because a task may be large.
    const rows = await this.#rows.store.getMany(keys, 0);
    for (const [index, run] of runs.entries()) if (rows[index]?.revision !== run.revision) this.#options.lost(run);
  }
}
