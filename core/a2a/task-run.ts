/** A task on which an agent of this process works, or has just finished. */
import { setMaxListeners } from "node:events";
import type { AgentPart, PartSink } from "../agents/run/parts.ts";
import { TaskOutput } from "./output.ts";
import { type Ending, ended, isWorking, type Task, type TaskRecord } from "./task.ts";
import type { FoundTask } from "./task-rows.ts";
import { Waiters } from "./waiters.ts";

/** Longest answer, text and files together. */
export const MAX_ANSWER_CHARACTERS = 4 * 1024 * 1024;

export class TaskRun implements PartSink {
  /** The task as it was at the start of the run. */
  readonly beginning: Task;
  /** The task as clients see it: its end appears only once it has been written. */
  record: TaskRecord;
  /** Revision of its row in the store; -1 until that is written. */
  revision = -1;
  /** Set when it starts to end, for whatever reason. */
  ending: Promise<void> | null = null;
  /** Always false: a task continues when its client leaves. */
  readonly closed = false;
  /** Whether a call of it waits, or has waited, for a person. */
  hasAsked = false;
  readonly output: TaskOutput;
  /** The position where the output of this run starts: earlier output came before a question. */
  readonly begin: number;
  /** Woken by all output of the agent, and by the end. */
  readonly said = new Waiters();
  /** Woken only by the end. */
  readonly over = new Waiters();
  readonly #controller = new AbortController();
  readonly #tooLong: (run: TaskRun) => void;
  #finish: Record<string, unknown> | undefined;

  /** @param tooLong called when the answer exceeds its limit */
  constructor(record: TaskRecord, tooLong: (run: TaskRun) => void) {
    this.record = record;
    this.beginning = record.task;
    this.output = new TaskOutput(record.task.artifacts);
    this.begin = this.output.length;
    this.#tooLong = tooLong;
    // Every tool that runs in parallel adds a listener; without this Node would warn of a leak.
    setMaxListeners(0, this.#controller.signal);
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** Whether the agent has finished this run. After an answer the task may continue in another run. */
  get isOver(): boolean {
    return !isWorking(this.record.task);
  }

  part(part: AgentPart): undefined {
    if (part.type === "tool-approval-request") this.hasAsked = true;
    if (this.ending !== null) return;
    if (part.type === "finish" && part.subAgentId === undefined)
      this.#finish = { finishReason: part.finishReason, usage: part.totalUsage };
    if (!this.output.add(part)) return;
    if (this.output.size > MAX_ANSWER_CHARACTERS) this.#tooLong(this);
    else this.said.wake();
  }

  /** Its row as this process last wrote it. */
  get found(): FoundTask {
    const { record, revision } = this;
    return { record, revision, size: 0 };
  }

  /** The task in its present state, with all output of the agent. */
  snapshot(): Task {
    const { task } = this.record;
    return this.isOver ? task : { ...task, artifacts: this.output.artifacts() };
  }

  /** The record with the end of the task. @param now milliseconds since 1970 */
  endingWith(ending: Ending, now: number): TaskRecord {
    const metadata = ending.state === "TASK_STATE_COMPLETED" ? this.#finish : undefined;
    const record = { ...this.record, task: this.snapshot() };
    return ended(record, metadata === undefined ? ending : { ...ending, metadata }, now);
  }

  /** Aborts the work of the agent. */
  abort(reason: string): void {
    this.#controller.abort(new Error(reason));
  }

  /** Called when the end has been written: notifies everybody who waits. */
  resolve(record: TaskRecord): void {
    this.record = record;
    this.said.wake();
    this.over.wake();
  }
}

/** A task as a principal may see it. */
export interface SeenTask {
  readonly task: Task;
  /** Undefined when no agent of this process works on it. */
  readonly run: TaskRun | undefined;
  /** Approximate size in characters. */
  readonly size: number;
}
