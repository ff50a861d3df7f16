/**
 * Tasks on a store that other processes use too: those that run here are said to live, and what others did to them is
 * noticed. Works only while something runs.
 */
import type { Logger } from "pino";
import { messageOf } from "../lib/errors.ts";
import { openTaskKey, taskKey } from "../storage/keys.ts";
import { openRow, type TaskRows } from "./task-rows.ts";
import type { TaskRun } from "./task-run.ts";

/** Milliseconds between two looks at the rows, and between two signs of life. */
const LOOK = 1_000;
const SIGN = 10_000;

export interface TaskHeartbeatsOptions {
  readonly logger: Logger;
  /** Another process has changed the row of a task that runs here. */
  lost(run: TaskRun): void;
}

export class TaskHeartbeats {
  readonly #rows: TaskRows;
  readonly #runs: ReadonlyMap<string, TaskRun>;
  readonly #options: TaskHeartbeatsOptions;
  #timer: NodeJS.Timeout | null = null;
  #round: Promise<void> = Promise.resolve();
  #signed = 0;
  #stopped = false;

  constructor(rows: TaskRows, runs: ReadonlyMap<string, TaskRun>, options: TaskHeartbeatsOptions) {
    this.#rows = rows;
    this.#runs = runs;
    this.#options = options;
  }

  /** Something runs. */
  begin(): void {
    if (this.#timer !== null || this.#stopped) return;
    this.#signed = performance.now();
    this.#arm();
  }

  #arm(): void {
    this.#timer = setTimeout(() => {
      this.#round = this.#look();
    }, LOOK);
    this.#timer.unref();
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    if (this.#timer !== null) clearTimeout(this.#timer);
    await this.#round;
  }

  async #look(): Promise<void> {
    try {
      const runs = [...this.#runs.values()].filter(({ ending, revision }) => ending === null && revision !== -1);
      const keys = runs.map(({ record }) => taskKey(record.agent, record.task.id));
      const rows = await this.#rows.store.getMany(keys);
      for (const [index, run] of runs.entries()) if (rows[index]?.revision !== run.revision) this.#options.lost(run);
      await this.#sign(runs);
    } catch (error) {
      this.#options.logger.warn({ err: error }, `tasks could not be looked at: ${messageOf(error)}`);
    }
    if (this.#stopped) return;
    if (this.#runs.size > 0) this.#arm();
    else this.#timer = null;
  }

  async #sign(runs: readonly TaskRun[]): Promise<void> {
    if (performance.now() - this.#signed < SIGN) return;
    this.#signed = performance.now();
    await this.#rows.store.commit({
      put: runs.map(({ record }) => [openTaskKey(record.task.id), openRow(record.agent, Date.now())]),
    });
  }
}
