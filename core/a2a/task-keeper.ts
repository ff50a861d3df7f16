/** Cleans up the tasks in the store: ends those that a dead process left open, and deletes those that are too old. */
import type { Logger } from "pino";
import { storedTime, systemTime } from "../lib/clock.ts";
import { messageOf } from "../lib/errors.ts";
import { Interval } from "../lib/interval.ts";
import { removeUnchanged, unlessConflict } from "../storage/conflict.ts";
import { OPEN_TASKS, openTask, taskEntry, taskIndex } from "../storage/keys.ts";
import { allRows, pagesInBackground } from "../storage/ranges.ts";
import { isShared, isVolatile } from "../storage/sharing.ts";
import type { Row } from "../storage/store.ts";
import { ended, isWorking, type TaskState } from "./task.ts";
import { type IndexValue, parseTaskLease, type TaskRows } from "./task-rows.ts";
import { removeSurplusTasks } from "./task-surplus.ts";

const ROUND_INTERVAL_MS = 60_000;
/** Pause between two checks of the bytes of tasks in memory. */
const SURPLUS_INTERVAL_MS = 1_000;
const ROWS_PER_COMMIT = 100;
const LEASES_PER_READ = 1_000;
const OPEN_STATES: ReadonlySet<TaskState> = new Set(["TASK_STATE_WORKING", "TASK_STATE_INPUT_REQUIRED"]);

interface TaskKeeperOptions {
  /** Whether there are agents, which may have tasks. */
  readonly hasAgents: boolean;
  /** Milliseconds for which ended tasks are kept. */
  readonly retention: number;
  readonly logger: Logger;
}

export class TaskKeeper {
  readonly #rows: TaskRows;
  readonly #options: TaskKeeperOptions;
  readonly #rounds: Interval;
  readonly #surplus: Interval | null;
  /** The rounds of ending tasks of dead processes, one after the other. */
  #interrupting = Promise.resolve();
  #hasBegun = false;

  constructor(rows: TaskRows, options: TaskKeeperOptions) {
    this.#rows = rows;
    this.#options = options;
    this.#rounds = new Interval(
      ROUND_INTERVAL_MS,
      () => this.#round(),
      (error) => this.#failed(error),
    );
    const surplus: Interval = new Interval(
      SURPLUS_INTERVAL_MS,
      () => removeSurplusTasks(rows, surplus.signal),
      (error) => this.#failed(error),
    );
    this.#surplus = isVolatile(rows.store) ? surplus : null;
  }

  /** On a store that no other process uses, every open task was interrupted. */
  async start(): Promise<void> {
    if (isShared(this.#rows.store)) await this.#interruptTasksOfGone();
    else await this.interrupt(() => true);
    this.#rows.membership?.onGone(() => {
      if (this.#rounds.signal.aborted) return;
      this.#interrupting = this.#interrupting
        .then(() => this.#interruptTasksOfGone())
        .catch((error) => this.#failed(error));
    });
    this.adopt();
  }

  /** Starts the rounds when there is an agent for the first time. */
  adopt(): void {
    if (this.#hasBegun || !this.#options.hasAgents) return;
    this.#hasBegun = true;
    this.#rounds.start();
    this.#surplus?.start();
  }

  async close(): Promise<void> {
    await Promise.all([this.#rounds.stop(), this.#surplus?.stop()]);
    await this.#interrupting;
  }

  /** Ends every open task whose process is dead. */
  async interrupt(isGone: (process: string) => boolean | Promise<boolean>): Promise<void> {
    for await (const leases of allRows(this.#rows.store, { prefix: OPEN_TASKS }, LEASES_PER_READ)) {
      for (const lease of leases) {
        const { agent, process = "" } = parseTaskLease(lease.value);
        if (await isGone(process)) await this.#interrupt(lease, agent);
        if (this.#rounds.signal.aborted) return;
      }
    }
  }

  async #interruptTasksOfGone(): Promise<void> {
    const { membership } = this.#rows;
    if (membership !== null) await this.interrupt(membership.goneCheck());
  }

  #failed(error: unknown): void {
    this.#options.logger.warn({ err: error }, `tasks could not be looked through: ${messageOf(error)}`);
  }

  async #interrupt(lease: Row, agent: string): Promise<void> {
    const found = await this.#rows.read(agent, openTask(lease.key));
    if (found === undefined || !isWorking(found.record.task)) {
      await removeUnchanged(this.#rows.store, lease);
      return;
    }
    const ending = { state: "TASK_STATE_FAILED", reason: INTERRUPTED } as const;
    await unlessConflict(this.#rows.change(found.record, ended(found.record, ending, storedTime()), found.revision));
  }

  /** Deletes tasks that last changed before `time` (milliseconds since 1970), a page at a time. */
  async forget(time: number): Promise<void> {
    for await (const agent of this.#rows.agents()) {
      const prefix = taskIndex(agent);
      const range = { prefix, before: prefix + taskEntry(time, "") };
      for await (const old of pagesInBackground(this.#rows.store, range, ROWS_PER_COMMIT, this.#rounds.signal)) {
        // A task that has not ended is kept, however old it is.
        const over = old.filter(({ value }) => !OPEN_STATES.has((JSON.parse(value) as IndexValue)[0]));
        if (over.length > 0) await unlessConflict(this.#rows.delete(agent, over));
      }
    }
  }

  async #round(): Promise<void> {
    await this.#interruptTasksOfGone();
    await this.forget(Math.max(0, systemTime() - this.#options.retention));
  }
}

export const INTERRUPTED = "the service stopped while the task was running";
