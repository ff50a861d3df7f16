/** What happens to tasks in the store beside their runs: those that a dead process left open, and those that are too old. */
import type { Logger } from "pino";
import { CommitConflict, messageOf } from "../errors.ts";
import { OPEN_TASKS, openTask, taskEntry, taskIndex } from "../storage/keys.ts";
import { isShared } from "../storage/sharing.ts";
import type { Row } from "../storage/store.ts";
import { Repeat } from "../workflows/repeat.ts";
import { ended, isOver } from "./task.ts";
import { type IndexValue, readOpenRow, type TaskRows } from "./task-rows.ts";

/** Milliseconds between two rounds. */
const ROUND = 60_000;
const BATCH = 100;
/** Milliseconds after its last sign of life that a task of another process is taken for dead. */
const SILENCE = 60_000;

export interface TaskKeeperOptions {
  readonly agents: readonly string[];
  /** Milliseconds. */
  readonly retention: number;
  readonly logger: Logger;
}

export class TaskKeeper {
  readonly #rows: TaskRows;
  readonly #options: TaskKeeperOptions;
  readonly #rounds: Repeat;
  #stopped = false;

  constructor(rows: TaskRows, options: TaskKeeperOptions) {
    this.#rows = rows;
    this.#options = options;
    this.#rounds = new Repeat(
      ROUND,
      () => this.#round(),
      (error) => options.logger.warn({ err: error }, `tasks could not be looked through: ${messageOf(error)}`),
    );
  }

  /** On a store of this process alone, whatever is open was left behind. */
  async start(): Promise<void> {
    await this.interrupt(isShared(this.#rows.store) ? Date.now() - SILENCE : Number.POSITIVE_INFINITY);
    if (this.#options.agents.length > 0) this.#rounds.start();
  }

  async close(): Promise<void> {
    this.#stopped = true;
    await this.#rounds.stop();
  }

  /** Ends every open task that gave its last sign of life before `silentSince` (milliseconds since 1970). */
  async interrupt(silentSince: number): Promise<void> {
    let after: string | undefined;
    for (;;) {
      const range = { prefix: OPEN_TASKS, limit: BATCH };
      const open = await this.#rows.store.scan(after === undefined ? range : { ...range, after });
      for (const row of open) if (readOpenRow(row.value).seen < silentSince) await this.#interrupt(row);
      if (open.length < BATCH || this.#stopped) return;
      after = open.at(-1)!.key;
    }
  }

  async #interrupt(open: Row): Promise<void> {
    const { agent } = readOpenRow(open.value);
    const found = await this.#rows.read(agent, openTask(open.key));
    if (found === undefined || isOver(found.record.task)) {
      await unlessLost(this.#rows.store.commit({ delete: [open.key], expect: [[open.key, open.revision]] }));
      return;
    }
    const ending = { state: "TASK_STATE_FAILED", reason: INTERRUPTED } as const;
    await unlessLost(this.#rows.change(found.record, ended(found.record, ending, Date.now()), found.revision));
  }

  /** Deletes what last changed before `time` (milliseconds since 1970), a few tasks at a time. */
  async forget(time: number): Promise<void> {
    for (const agent of this.#options.agents) {
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
    if (isShared(this.#rows.store)) await this.interrupt(Date.now() - SILENCE);
    await this.forget(Date.now() - this.#options.retention);
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
