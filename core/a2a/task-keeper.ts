/** What happens to tasks in the store beside their runs: those that a dead process left open, and those that are too old. */

import type { Logger } from "pino";
import { storedTime, systemTime } from "../lib/clock.ts";
import { CommitConflict, messageOf } from "../lib/errors.ts";
import { Interval } from "../lib/interval.ts";
import { OPEN_TASKS, openTask, taskEntry, taskIndex } from "../storage/keys.ts";
import { isShared } from "../storage/sharing.ts";
import type { Row } from "../storage/store.ts";
import { ended, isOver } from "./task.ts";
import { type IndexValue, readOpenRow, type TaskRows } from "./task-rows.ts";

/** Milliseconds between two rounds. */
const ROUND = 60_000;
const BATCH = 100;
/**
 * Milliseconds without a sign of life after which a task of another process is taken for dead. They are counted here: the
 * clock of the other process may be wrong.
 */
const SILENCE = 45_000;

export interface TaskKeeperOptions {
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
  /** Open tasks, by key: the last sign of life of each, and since when it stands, by `performance.now()`. */
  #signs = new Map<string, { readonly revision: number; readonly since: number }>();
  #stopped = false;

  constructor(rows: TaskRows, options: TaskKeeperOptions) {
    this.#rows = rows;
    this.#options = options;
    this.#rounds = new Interval(
      ROUND,
      () => this.#round(),
      (error) => options.logger.warn({ err: error }, `tasks could not be looked through: ${messageOf(error)}`),
    );
  }

  /** On a store of this process alone, whatever is open was left behind. */
  async start(): Promise<void> {
    await this.interrupt(isShared(this.#rows.store) ? SILENCE : 0);
    if (this.#options.hasAgents) this.#rounds.start();
  }

  async close(): Promise<void> {
    this.#stopped = true;
    await this.#rounds.stop();
  }

  /** Ends every open task whose last sign of life has been the same for `silence` milliseconds, since it was first looked at. */
  async interrupt(silence: number): Promise<void> {
    const now = performance.now();
    const signs = new Map<string, { revision: number; since: number }>();
    let after: string | undefined;
    for (;;) {
      const range = { prefix: OPEN_TASKS, limit: BATCH };
      const open = await this.#rows.store.scan(after === undefined ? range : { ...range, after });
      for (const row of open) {
        const { key, revision } = row;
        const known = this.#signs.get(key);
        const since = known?.revision === revision ? known.since : now;
        if (now - since >= silence) await this.#interrupt(row);
        else signs.set(key, { revision, since });
      }
      if (open.length < BATCH || this.#stopped) break;
      after = open.at(-1)!.key;
    }
    this.#signs = signs;
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

  /** Deletes what last changed before `time` (milliseconds since 1970), a few tasks at a time. */
  async forget(time: number): Promise<void> {
    for await (const agent of this.#rows.agents()) {
      for (;;) {
        const prefix = taskIndex(agent);
        const old = await this.#rows.store.scan({ prefix, before: prefix + taskEntry(time, ""), limit: BATCH });
        // One that still works is no memory of the past, however long it takes.
        const over = old.filter(({ value }) => (JSON.parse(value) as IndexValue)[0] !== "TASK_STATE_WORKING");
        if (over.length > 0) await unlessLost(this.#rows.delete(agent, over));
        if (old.length < BATCH || over.length === 0 || this.#stopped) break;
      }
    }
  }

  async #round(): Promise<void> {
    if (isShared(this.#rows.store)) await this.interrupt(SILENCE);
    await this.forget(Math.max(0, systemTime() - this.#options.retention));
  }
}

export const INTERRUPTED = "the service stopped while the task was running";

/** Another process was first: it has done the same, or something that counts more. */
async function unlessLost(commit: Promise<unknown>): Promise<void> {
  try {
    await commit;
  } catch (error) {
    if (!(error instanceof CommitConflict)) throw error;
  }
}
