/** Cleans up the tasks in the store: ends those that a dead process left open, and deletes those that are too old. */
import type { Logger } from "pino";
import { storedTime, systemTime } from "../lib/clock.ts";
import { CommitConflict, messageOf } from "../lib/errors.ts";
import { Interval } from "../lib/interval.ts";
import { OPEN_TASKS, openTask, taskEntry, taskIndex } from "../storage/keys.ts";
import { isShared } from "../storage/sharing.ts";
import type { Row } from "../storage/store.ts";
import { ended, isOver } from "./task.ts";
import { type IndexValue, readOpenRow, type TaskRows } from "./task-rows.ts";

const ROUND_INTERVAL_MS = 60_000;
const BATCH_ROWS = 100;
/**
 * A task of another process is taken for dead when its heartbeat has not changed for this long. The time is measured here,
 * because the clock of the other process may be wrong.
 */
const LEASE_TIMEOUT_MS = 45_000;

interface TaskKeeperOptions {
  /** Whether there are agents, whose tasks come and go. */
  readonly hasAgents: boolean;
  /** Milliseconds. */
  readonly retention: number;
  readonly logger: Logger;
}

export class TaskKeeper {
  readonly #rows: TaskRows;
  readonly #options: TaskKeeperOptions;
  readonly #rounds: Interval;
  /** The last heartbeat of each open task, by its key, and since when it has not changed, by `performance.now()`. */
  #heartbeats = new Map<string, { readonly revision: number; readonly since: number }>();
  #stopped = false;

  constructor(rows: TaskRows, options: TaskKeeperOptions) {
    this.#rows = rows;
    this.#options = options;
    this.#rounds = new Interval(
      ROUND_INTERVAL_MS,
      () => this.#round(),
      (error) => options.logger.warn({ err: error }, `tasks could not be looked through: ${messageOf(error)}`),
    );
  }

  /** On a store that no other process uses, every open task was interrupted. */
  async start(): Promise<void> {
    await this.interrupt(isShared(this.#rows.store) ? LEASE_TIMEOUT_MS : 0);
    if (this.#options.hasAgents) this.#rounds.start();
  }

  async close(): Promise<void> {
    this.#stopped = true;
    await this.#rounds.stop();
  }

  /** Ends every open task whose heartbeat has not changed for `leaseTimeout` milliseconds since it was first seen here. */
  async interrupt(leaseTimeout: number): Promise<void> {
    const now = performance.now();
    const heartbeats = new Map<string, { revision: number; since: number }>();
    let after: string | undefined;
    for (;;) {
      const range = { prefix: OPEN_TASKS, limit: BATCH_ROWS };
      const open = await this.#rows.store.scan(after === undefined ? range : { ...range, after });
      for (const row of open) {
        const { key, revision } = row;
        const known = this.#heartbeats.get(key);
        const since = known?.revision === revision ? known.since : now;
        if (now - since >= leaseTimeout) await this.#interrupt(row);
        else heartbeats.set(key, { revision, since });
      }
      if (open.length < BATCH_ROWS || this.#stopped) break;
      after = open.at(-1)!.key;
    }
    this.#heartbeats = heartbeats;
  }

  async #interrupt(open: Row): Promise<void> {
    const { agent } = readOpenRow(open.value);
    const found = await this.#rows.read(agent, openTask(open.key));
    if (found === undefined || isOver(found.record.task)) {
      await unlessLost(this.#rows.store.commit({ delete: [open.key], expect: [[open.key, open.revision]] }));
      return;
    }
    const ending = { state: "TASK_STATE_FAILED", reason: INTERRUPTED } as const;
    await unlessLost(this.#rows.change(found.record, ended(found.record, ending, storedTime()), found.revision));
  }

  /** Deletes tasks that last changed before `time` (milliseconds since 1970), a few at a time. */
  async forget(time: number): Promise<void> {
    for await (const agent of this.#rows.agents()) {
      for (;;) {
        const prefix = taskIndex(agent);
        const old = await this.#rows.store.scan({ prefix, before: prefix + taskEntry(time, ""), limit: BATCH_ROWS });
        // A task that still works is kept, however long it takes.
        const over = old.filter(({ value }) => (JSON.parse(value) as IndexValue)[0] !== "TASK_STATE_WORKING");
        if (over.length > 0) await unlessLost(this.#rows.delete(agent, over));
        if (old.length < BATCH_ROWS || over.length === 0 || this.#stopped) break;
      }
    }
  }

  async #round(): Promise<void> {
    if (isShared(this.#rows.store)) await this.interrupt(LEASE_TIMEOUT_MS);
    await this.forget(Math.max(0, systemTime() - this.#options.retention));
  }
}

export const INTERRUPTED = "the service stopped while the task was running";

/** A conflict means that another process was first: it has done the same, or has changed the task. */
async function unlessLost(commit: Promise<unknown>): Promise<void> {
  try {
    await commit;
  } catch (error) {
    if (!(error instanceof CommitConflict)) throw error;
  }
}
