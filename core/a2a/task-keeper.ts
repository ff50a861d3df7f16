/** Cleans up the tasks in the store: goes on with those whose process is gone, and deletes those that are too old. */
import type { Logger } from "pino";
import { systemTime } from "../lib/clock.ts";
import { messageOf } from "../lib/errors.ts";
import { Interval } from "../lib/interval.ts";
import { idOfRow, placeOfRow } from "../storage/collection.ts";
import { excessBytes } from "../storage/memory-shares.ts";
import { Orphans } from "../storage/orphans.ts";
import { allRows } from "../storage/ranges.ts";
import { isVolatile, type Row, removeUnchanged } from "../storage/store.ts";
import type { TaskState } from "./task.ts";
import { type IndexValue, OPEN_TASKS, parseTaskLease, type TaskRows } from "./task-rows.ts";

const ROUND_INTERVAL_MS = 60_000;
/** Pause between two checks of the bytes of tasks in memory. */
const SURPLUS_INTERVAL_MS = 1_000;
const ROWS_PER_READ = 100;
const OPEN_STATES: ReadonlySet<TaskState> = new Set(["TASK_STATE_WORKING", "TASK_STATE_INPUT_REQUIRED"]);

interface TaskKeeperOptions {
  /** Goes on with a task that says it works. Resolves to false when it does not. */
  takeUp(agent: string, task: string): Promise<boolean>;
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
  /** The tasks that processes have left. */
  readonly #orphans: Orphans;
  #hasBegun = false;

  constructor(rows: TaskRows, options: TaskKeeperOptions) {
    this.#rows = rows;
    this.#options = options;
    const failed = (error: unknown) =>
      options.logger.warn({ err: error }, `tasks could not be looked through: ${messageOf(error)}`);
    this.#rounds = new Interval(ROUND_INTERVAL_MS, () => this.#round(), failed);
    const surplus: Interval = new Interval(SURPLUS_INTERVAL_MS, () => removeSurplusTasks(rows, surplus.signal), failed);
    this.#surplus = isVolatile(rows.store) ? surplus : null;
    this.#orphans = new Orphans({
      store: rows.store,
      membership: rows.membership,
      prefix: OPEN_TASKS,
      processOf: ({ value }) => parseTaskLease(value).process ?? "",
      end: (lease) => this.#takeUp(lease),
      failed,
    });
  }

  /** Goes on with the tasks that processes have left which are gone, now and whenever one goes. */
  async start(): Promise<void> {
    await this.#orphans.start();
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
    await Promise.all([this.#orphans.close(), this.#rounds.stop(), this.#surplus?.stop()]);
  }

  async #takeUp(lease: Row): Promise<void> {
    const isOpen = await this.#options.takeUp(parseTaskLease(lease.value).agent, idOfRow(lease));
    if (!isOpen) await removeUnchanged(this.#rows.store, lease);
  }

  /** Deletes tasks that last changed before `time` (milliseconds since 1970), a page at a time. */
  async forget(time: number): Promise<void> {
    // A task that has not ended is kept, however old it is.
    const isOld = ({ value }: Row) => !OPEN_STATES.has((JSON.parse(value) as IndexValue)[0]);
    for await (const agent of this.#rows.agents())
      await this.#rows
        .of(agent)
        .removeBefore(time, this.#rounds.signal, (found) => this.#rows.delete(agent, found.filter(isOld)));
  }

  async #round(): Promise<void> {
    await this.#orphans.look();
    // Their runs may have come to rest while the store was away.
    for await (const leases of allRows(this.#rows.store, { prefix: OPEN_TASKS }, ROWS_PER_READ))
      for (const lease of leases)
        if (parseTaskLease(lease.value).process === this.#rows.membership?.name) await this.#takeUp(lease);
    await this.forget(systemTime() - this.#options.retention);
  }
}

/** The oldest of each agent that are looked at together. */
const TASKS_PER_LOOK = 200;

/** Removes tasks until all take no more than their room in `memory:`, or only those are left that still work. One that waits for an answer makes room too. */
export async function removeSurplusTasks(rows: TaskRows, signal: AbortSignal): Promise<void> {
  const excess = () => excessBytes(rows.store, "tasks");
  for (let left = excess(), before = Number.POSITIVE_INFINITY; left > 0 && left < before; left = excess()) {
    before = left;
    for (const { agent, row } of await oldestTasks(rows)) {
      if (signal.aborted || excess() <= 0) return;
      await rows.delete(agent, [row]);
    }
  }
}

async function oldestTasks(rows: TaskRows): Promise<{ agent: string; row: Row }[]> {
  const found: { agent: string; row: Row; updatedAt: number }[] = [];
  for await (const agent of rows.agents()) {
    // Running tasks may be the oldest for long: later pages have those that can be removed.
    for await (const page of allRows(rows.store, { prefix: rows.of(agent).listOf({}) }, TASKS_PER_LOOK)) {
      const idle = page.filter(({ value }) => (JSON.parse(value) as IndexValue)[0] !== "TASK_STATE_WORKING");
      found.push(...idle.map((row) => ({ agent, row, updatedAt: placeOfRow(row) })));
      if (idle.length > 0) break;
    }
  }
  return found.sort((left, right) => left.updatedAt - right.updatedAt);
}
