/** A task that an agent of this process works on, or did until a moment ago. */
import { setMaxListeners } from "node:events";
import type { AgentPart, PartSink } from "../agents/run/parts.ts";
import { TaskOutput } from "./output.ts";
import { type Ending, ended, isOver, type Task, type TaskRecord } from "./task.ts";
import { Waiters } from "./waiters.ts";

/** Characters of text and files that an answer may have. */
export const LONGEST_ANSWER = 4 * 1024 * 1024;

export class TaskRun implements PartSink {
  /** The task as it was when it began. */
  readonly beginning: Task;
  /** How the task stands for everybody: its end counts once it has been written. */
  record: TaskRecord;
  /** Of its row. */
  revision = -1;
  /** Set when it begins to end, whoever ends it. */
  ending: Promise<void> | null = null;
  /** Nobody's leaving ends a task. */
  readonly closed = false;
  readonly output = new TaskOutput();
  /** Woken by everything that the agent says, and by the end; by the end alone. */
  readonly said = new Waiters();
  readonly over = new Waiters();
  readonly #controller = new AbortController();
  readonly #tooLong: (run: TaskRun) => void;
  #finish: Record<string, unknown> | undefined;

  /** @param tooLong called when the answer is longer than it may be */
  constructor(record: TaskRecord, tooLong: (run: TaskRun) => void) {
    this.record = record;
    this.beginning = record.task;
    this.#tooLong = tooLong;
    // Tools that run side by side listen each: that is no leak, and Node would warn of one.
    setMaxListeners(0, this.#controller.signal);
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  get isOver(): boolean {
    return isOver(this.record.task);
  }

  part(part: AgentPart): undefined {
    if (this.ending !== null) return;
    if (part.type === "finish" && part.subAgentId === undefined)
      this.#finish = { finishReason: part.finishReason, usage: part.totalUsage };
    if (!this.output.add(part)) return;
    if (this.output.size > LONGEST_ANSWER) this.#tooLong(this);
    else this.said.wake();
  }

  /** The task as it stands, with all that the agent has said. */
  snapshot(): Task {
    const { task } = this.record;
    return this.isOver ? task : { ...task, artifacts: this.output.artifacts() };
  }

  /** The record of its end. @param now milliseconds since 1970 */
  endingWith(ending: Ending, now: number): TaskRecord {
    const metadata = ending.state === "TASK_STATE_COMPLETED" ? this.#finish : undefined;
    const record = { ...this.record, task: this.snapshot() };
    return ended(record, metadata === undefined ? ending : { ...ending, metadata }, now);
  }

  /** Has the agent stop. */
  abort(reason: string): void {
    this.#controller.abort(new Error(reason));
  }

  /** From now on it stands as the record says. */
  settle(record: TaskRecord): void {
    this.record = record;
    this.said.wake();
    this.over.wake();
  }
}
