/** The tasks of a service: starts them, finds them for their owners, and makes sure that each one ends. */
import { setMaxListeners } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import type { Logger } from "pino";
import type { Agent, GenerateBody, RunCall } from "../agents/agent.ts";
import { approvalPlace } from "../approvals/rows.ts";
import { mayAccess } from "../identity/ownership.ts";
import type { Principal } from "../identity/principal.ts";
import { storedTime } from "../lib/clock.ts";
import { CommitConflict, invalid, messageOf, ServiceError, unavailable } from "../lib/errors.ts";
import { UserBound } from "../lib/user-bound.ts";
import { OPEN_TASKS, taskKey } from "../storage/keys.ts";
import { isShared } from "../storage/sharing.ts";
import { ENDED_BY_STOP, endingForError, endingForWaiting } from "./endings.ts";
import { type NewTask, newRecord, RepeatedMessage } from "./new-task.ts";
import type { TaskApprovals } from "./questions.ts";
import { RunningTasks } from "./running-tasks.ts";
import { type Ending, ended, isOver, resumed, type Task, type TaskRecord, type WaitingFor } from "./task.ts";
import { isTaskId } from "./task-ids.ts";
import type { FoundTask, TaskRows } from "./task-rows.ts";
import { MAX_ANSWER_CHARACTERS, type SeenTask, TaskRun } from "./task-run.ts";

/** Most tasks that may run at once; needed because a task continues when its client leaves. */
const MAX_RUNNING_TASKS = 1_000;
/** Pause before the end of a task is written again after the store has failed. */
const WRITE_RETRY_DELAY_MS = 1_000;
/** How long to wait for agents to stop after their signal has aborted, when the service stops. */
const SHUTDOWN_TIMEOUT_MS = 1_000;
interface TasksOptions {
  readonly logger: Logger;
  /** How many tasks of one user may be open; default: any number. */
  openTasks?(): number;
  /** Called for each task above that limit. */
  readonly refused?: (() => void) | undefined;
  readonly approvals?: Pick<TaskApprovals, "withdrawAt"> | undefined;
  /** Milliseconds between two checks for changes by other processes. */
  readonly pollInterval?: number | undefined;
}

interface Work {
  readonly agent: Agent;
  readonly body: GenerateBody;
  readonly caller: TaskCaller;
}

/** The caller for whom an agent works. */
export type TaskCaller = Omit<RunCall, "signal">;

export class Tasks {
  readonly rows: TaskRows;
  readonly #options: TasksOptions;
  readonly #watched: RunningTasks;
  /** Tasks whose end has not been written, by id. */
  readonly #runs = new Map<string, TaskRun>();
  /** Agents that are working, including those that ignore their signal. */
  readonly #working = new Set<Promise<void>>();
  /** Writes of ends that the store has not accepted yet. */
  readonly #writing = new Set<Promise<void>>();
  readonly #closing = new AbortController();
  readonly #openTasks: UserBound;

  constructor(rows: TaskRows, options: TasksOptions) {
    const { logger, openTasks = () => Number.POSITIVE_INFINITY, pollInterval } = options;
    this.rows = rows;
    this.#options = options;
    this.#openTasks = new UserBound({
      count: (user, most) => rows.countOpen(user, most),
      limit: openTasks,
      tooMany: (limit) => `the user has ${limit} open tasks already: wait until one has ended, or cancel one`,
    });
    this.#watched = new RunningTasks(rows, this.#runs, {
      logger,
      pollInterval,
      lost: (run) => void this.#end(run, { state: "TASK_STATE_CANCELED" }),
    });
    // Other processes consider this one dead, and fail its tasks.
    rows.membership?.onLost(() => {
      for (const run of this.#runs.values()) void this.#end(run, ENDED_BY_STOP);
    });
  }

  /**
   * @throws RepeatedMessage for a message that has started a task; ServiceError `unavailable` when too many run, and when the store fails,
   * `rate_limited` when the user has too many, `invalid_input` for a different message with the id of an earlier one
   */
  async begin(agent: Agent, fresh: NewTask, principal: Principal, caller: TaskCaller): Promise<TaskRun> {
    this.#requireRoom();
    const { body, content } = fresh;
    const record = newRecord(agent.id, fresh, principal, caller);
    const [key] = record.message!;
    const push = fresh.push?.(record.task.id);
    const create = () => this.#start(record, (record) => this.rows.create(record, push), { agent, body, caller });
    try {
      return await this.#openTasks.claim(record.owner, create);
    } catch (error) {
      // A repeated message starts no task, so it must be found even at the limit.
      const isFull = error instanceof ServiceError && error.kind === "rate_limited";
      if (!isFull && !(error instanceof CommitConflict)) throw error;
      const known = await this.rows.ofMessage(key);
      if (isFull && known === undefined) this.#options.refused?.();
      if (known === undefined) throw isFull ? error : unavailable("the task could not begin: try again");
      if (known[1] !== content) throw invalid("params.message.messageId must be new: another message had it");
      throw new RepeatedMessage(known[0]);
    }
  }

  /**
   * Continues a task that has waited for an answer.
   *
   * @throws CommitConflict when another process was first; ServiceError `unavailable` like `begin`
   */
  resume({ record, revision }: FoundTask, waiting: WaitingFor, agent: Agent, caller: TaskCaller): Promise<TaskRun> {
    this.#requireRoom();
    const { origin, task } = record;
    const options = { memory: { conversationId: task.contextId }, context: origin?.context };
    const body = { input: waiting.input, options };
    const change = (after: TaskRecord) => this.rows.change(record, after, revision);
    return this.#start(resumed(record, storedTime()), change, { agent, body, caller });
  }

  /** Ends a waiting task. @throws CommitConflict when another process was first */
  async end({ record, revision }: FoundTask, ending: Ending): Promise<void> {
    await this.rows.change(record, ended(record, ending, storedTime()), revision);
  }

  #requireRoom(): void {
    if (this.#closing.signal.aborted) throw unavailable("the server is stopping");
    if (Math.max(this.#runs.size, this.#working.size) >= MAX_RUNNING_TASKS)
      throw unavailable(`${MAX_RUNNING_TASKS} tasks are running: try again when some have ended`);
  }

  async #start(record: TaskRecord, write: (record: TaskRecord) => Promise<number>, work: Work): Promise<TaskRun> {
    const { id } = record.task;
    const run = new TaskRun(record, (run) => this.#endTooLong(run));
    if (this.#runs.has(id)) throw new CommitConflict([taskKey(record.agent, id)]);
    this.#runs.set(id, run);
    try {
      run.revision = await write(record);
    } catch (error) {
      this.#runs.delete(id);
      throw error;
    }
    if (isShared(this.rows.store)) this.#watched.begin();
    const working = this.#work(run, work).finally(() => this.#working.delete(working));
    work.caller.charge?.during(working);
    this.#working.add(working);
    return run;
  }

  async #work(run: TaskRun, { agent, body, caller }: Work): Promise<void> {
    const { user, caller: by, requestId, logger, trace } = caller;
    const call = { user, caller: by, requestId, logger, trace, signal: run.signal, taskId: run.record.task.id };
    try {
      const waiting = await agent.runOrWait(body, call, run);
      await this.#end(run, waiting === null ? { state: "TASK_STATE_COMPLETED" } : endingForWaiting(waiting));
    } catch (error) {
      // Whoever ended the task has set the reason.
      if (run.ending !== null) return;
      if (!(error instanceof ServiceError)) logger.error({ err: error, task: run.record.task.id }, messageOf(error));
      else if (error.cause !== undefined) logger.warn({ ...error.logged, err: error.cause }, error.message);
      await this.#end(run, endingForError(error, requestId));
    }
  }

  #endTooLong(run: TaskRun): void {
    const reason = `the answer is longer than ${MAX_ANSWER_CHARACTERS} characters`;
    void this.#end(run, { state: "TASK_STATE_FAILED", reason });
  }

  /** Ends a task. The first call decides how it ends. Never rejects. */
  #end(run: TaskRun, ending: Ending): Promise<void> {
    run.ending ??= this.#conclude(run, ending);
    return run.ending;
  }

  async #conclude(run: TaskRun, ending: Ending): Promise<void> {
    const before = run.found;
    const record = run.endingWith(ending, storedTime());
    const { id } = record.task;
    run.abort(ending.reason ?? "the task has ended");
    try {
      const written = await this.#write(before, record);
      if (run.hasAsked) await this.#withdraw(written);
      run.resolve(written);
      this.#runs.delete(id);
    } catch (error) {
      this.#options.logger.error({ err: error, task: id }, `the end of a task cannot be written: ${messageOf(error)}`);
      run.resolve(record);
      const writing = this.#writeLater(before, record).finally(() => {
        this.#runs.delete(id);
        this.#writing.delete(writing);
      });
      this.#writing.add(writing);
    }
  }

  /** Resolves to the final record: that of another process, if it has ended the task before. */
  async #write(before: FoundTask, record: TaskRecord): Promise<TaskRecord> {
    try {
      await this.rows.change(before.record, record, before.revision);
      return record;
    } catch (error) {
      if (!(error instanceof CommitConflict)) throw error;
      return (await this.rows.read(record.agent, record.task.id))?.record ?? record;
    }
  }

  /** Retries until the store accepts the end, or the service stops. */
  async #writeLater(before: FoundTask, record: TaskRecord): Promise<void> {
    for (;;) {
      await sleep(WRITE_RETRY_DELAY_MS, undefined, { signal: this.#closing.signal, ref: false }).catch(() => {});
      try {
        await this.#write(before, record);
        return;
      } catch {
        if (this.#closing.signal.aborted) return;
      }
    }
  }

  /** The task; undefined when it does not exist for this principal. */
  async find(agent: string, id: string, principal: Principal): Promise<SeenTask | undefined> {
    const found = await this.#find(agent, id, principal);
    if (found === undefined) return undefined;
    const { record, run, size } = found;
    return run === undefined ? { task: record.task, run, size } : { task: run.snapshot(), run, size: run.output.size };
  }

  async #find(agent: string, id: string, principal: Principal) {
    if (!isTaskId(id)) return undefined;
    const live = this.#runs.get(id);
    // A run whose start is not written yet may still find that another process was first.
    const run = live?.revision === -1 ? undefined : live;
    // While it is ending, wait for the outcome: another process may have ended it differently.
    if (run !== undefined && run.ending !== null) await run.ending;
    const found = run === undefined ? await this.rows.read(agent, id) : run.found;
    if (found === undefined || found.record.agent !== agent) return undefined;
    return mayAccess(principal, found.record.owner, undefined) ? { ...found, run } : undefined;
  }

  /** Resolves to the task afterwards: canceled, unless it had ended before. Undefined when it does not exist. */
  async cancel(agent: string, id: string, principal: Principal): Promise<Task | undefined> {
    const found = await this.#find(agent, id, principal);
    if (found === undefined) return undefined;
    const ending = { state: "TASK_STATE_CANCELED", reason: "the task was canceled" } as const;
    if (found.run !== undefined) {
      await this.#end(found.run, ending);
      return found.run.record.task;
    }
    if (isOver(found.record.task)) return found.record.task;
    const record = ended(found.record, ending, storedTime());
    try {
      // The process that works on it will notice that the row has changed.
      await this.rows.change(found.record, record, found.revision);
      this.rows.store.wake?.(OPEN_TASKS);
      await this.#withdraw(record);
      return record.task;
    } catch (error) {
      if (!(error instanceof CommitConflict)) throw error;
      return (await this.#find(agent, id, principal))?.record.task;
    }
  }

  async #withdraw({ task }: TaskRecord): Promise<void> {
    const reason = task.status.state === "TASK_STATE_CANCELED" ? "cancelled" : "ended";
    if (isOver(task)) await this.#options.approvals?.withdrawAt(approvalPlace("task", task.id), reason);
  }

  /** Waits for all running tasks, at most some milliseconds. */
  async idle(timeout: number): Promise<void> {
    const limit = new AbortController();
    setMaxListeners(0, limit.signal);
    const timer = setTimeout(() => limit.abort(), timeout);
    const runs = [...this.#runs.values()].filter((run) => !run.isOver);
    await Promise.all(runs.map((run) => run.over.wait(limit.signal)));
    clearTimeout(timer);
  }

  /** Ends all running tasks. */
  async close(): Promise<void> {
    this.#closing.abort();
    await this.#watched.stop();
    await Promise.all([...this.#runs.values()].map((run) => this.#end(run, ENDED_BY_STOP)));
    await Promise.all(this.#writing);
    await atMost(SHUTDOWN_TIMEOUT_MS, Promise.all(this.#working));
  }
}

async function atMost(milliseconds: number, work: Promise<unknown>): Promise<void> {
  const over = new AbortController();
  await Promise.race([work, sleep(milliseconds, undefined, { signal: over.signal }).catch(() => {})]);
  over.abort();
}
