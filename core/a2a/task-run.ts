/** A task that an agent of this process works on, or has just finished. */
import { setMaxListeners } from "node:events";
import type { AgentPart, PartSink } from "../agents/run/parts.ts";
import { TaskOutput } from "./output.ts";
import { type Ending, ended, isWorking, type Task, type TaskRecord } from "./task.ts";
import { Waiters } from "./waiters.ts";

/** Text and files together. */
export const MAX_ANSWER_CHARACTERS = 4 * 1024 * 1024;

export class TaskRun implements PartSink {
  /** The task as it was when it began. */
  readonly beginning: Task;
  /** The task as everybody sees it: its end counts once it has been written. */
  record: TaskRecord;
  /** Of its row in the store; -1 until that is written. */
  revision = -1;
  /** Set when it begins to end, whoever ends it. */
  ending: Promise<void> | null = null;
  /** Never: a task goes on when its client leaves. */
  readonly closed = false;
  readonly output: TaskOutput;
  /** The position of what this run says: what the agent has said before it asked is not news. */
  readonly begin: number;
  /** Woken by everything that the agent says, and by the end. */
  readonly said = new Waiters();
  /** Woken by the end alone. */
  readonly over = new Waiters();
  readonly #controller = new AbortController();
  readonly #tooLong: (run: TaskRun) => void;
  #finish: Record<string, unknown> | undefined;

  /** @param tooLong called when the answer is longer than it may be */
  constructor(record: TaskRecord, tooLong: (run: TaskRun) => void) {
    this.record = record;
    this.beginning = record.task;
    this.output = new TaskOutput(record.task.artifacts);
    this.begin = this.output.length;
    this.#tooLong = tooLong;
    // Every tool that runs in parallel adds a listener: without this Node would warn of a leak.
    setMaxListeners(0, this.#controller.signal);
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** Whether the agent works on it no more. The task may go on with an answer, in another run. */
  get isOver(): boolean {
    return !isWorking(this.record.task);
  }

  part(part: AgentPart): undefined {
    if (this.ending !== null) return;
    if (part.type === "finish" && part.subAgentId === undefined)
      this.#finish = { finishReason: part.finishReason, usage: part.totalUsage };
    if (!this.output.add(part)) return;
    if (this.output.size > MAX_ANSWER_CHARACTERS) this.#tooLong(this);
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

  /** Tells the agent to stop. */
  abort(reason: string): void {
    this.#controller.abort(new Error(reason));
  }

  /** The end has been written: tells everybody who waits. */
  resolve(record: TaskRecord): void {
    this.record = record;
    this.said.wake();
    this.over.wake();
  }
}
