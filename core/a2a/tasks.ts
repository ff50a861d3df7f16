/**
 * The tasks of a service. Each is a kept run of its agent, which has its id: the run is stored, taken over and stopped like all others.
 * The row of a task has what A2A needs beside it, and follows it: it is changed when the run goes on, asks, and has ended.
 */
import type { Logger } from "pino";
import type { AnswerApprovalRequest } from "../../generated/types.ts";
import { validators } from "../../generated/validators.js";
import type { Agent } from "../agents/agent.ts";
import type { RunCall } from "../agents/run/caller.ts";
import type { PendingApproval } from "../agents/run/parts.ts";
import type { KeptRun } from "../agents/run-requests.ts";
import { requireValid } from "../http/decode.ts";
import { EVERYTHING, mayAccess, type Principal, type Requester } from "../identity/principal.ts";
import { CommitConflict, invalid, messageOf, ServiceError, unavailable, unlessNotFound } from "../lib/errors.ts";
import type { EventProducer } from "../lib/event-sink.ts";
import { Interval } from "../lib/interval.ts";
import { isObject } from "../lib/is-object.ts";
import { createKeyedMutex } from "../lib/keyed-mutex.ts";
import { UserBound } from "../lib/user-bound.ts";
import type { KeptRuns } from "../runs/kept-runs.ts";
import type { RunStanding } from "../runs/scoped.ts";
import { isStoreUnavailable } from "../storage/away.ts";
import { digestOf } from "../storage/keys.ts";
import { changeInTurn, isShared, unlessConflict } from "../storage/store.ts";
import type { Engine } from "../workflows/engine.ts";
import type { RunSuspension } from "../workflows/journal/record.ts";
import { type NewTask, newRecord, requestOf } from "./new-task.ts";
import { MAX_ANSWER_CHARACTERS, TaskOutput } from "./output.ts";
import type { PushConfig } from "./push-config.ts";
import {
  type Ending,
  ended,
  isOver,
  isWorking,
  type Message,
  type Part,
  resumed,
  type Task,
  type TaskRecord,
  withAnswer,
} from "./task.ts";
import { isTaskId } from "./task-ids.ts";
import { type FoundTask, type TaskRows, taskMessageKey } from "./task-rows.ts";

/* Reads the message with which the client of a task answers the approvals that its agent needs. */

const FORM = 'a data part {approvalId, approved, reason?, input?}, or the text "yes" or "no"';

/**
 * @param asked the approvals that the task waits for
 * @throws ServiceError `invalid_input` for a message that is not an answer to them
 */
function readAnswers(parts: readonly Part[], asked: readonly PendingApproval[]) {
  const data = parts.flatMap((part, index) => ("data" in part ? [dataAnswer(part.data, index, asked)] : []));
  if (data.length > 0) return data;
  const said = yesOrNo(parts.map(({ text }) => text ?? "").join("\n"));
  if (said === null || parts.some(({ text }) => text === undefined))
    throw invalid(`params.message.parts must be the answer to what the task asks: ${FORM}`);
  return [{ approvalId: theOnly(asked, "params.message.parts"), body: { approved: said === "yes" } }];
}

/** Reads yes or no, ignoring a punctuation mark at the end; null for anything else. */
function yesOrNo(text: string): "yes" | "no" | null {
  const word = text.trim().toLowerCase();
  const said = (word.endsWith(".") || word.endsWith("!") ? word.slice(0, -1) : word).trimEnd();
  return said === "yes" || said === "no" ? said : null;
}

function dataAnswer(data: unknown, index: number, asked: readonly PendingApproval[]) {
  const path = `params.message.parts[${index}].data`;
  if (!isObject(data)) throw invalid(`${path} must be an object: {approvalId, approved, reason?, input?}`);
  const { approvalId = theOnly(asked, path), ...body } = data as Record<string, unknown>;
  if (!asked.some((each) => each.approvalId === approvalId))
    throw invalid(
      `${path}.approvalId must be one that the task asks: ${asked.map((each) => each.approvalId).join(", ")}`,
    );
  requireValid(validators.AnswerApprovalRequest, body, path);
  return { approvalId: approvalId as string, body: body as unknown as AnswerApprovalRequest };
}

function theOnly(asked: readonly PendingApproval[], path: string): string {
  if (asked.length === 1) return asked[0]!.approvalId;
  throw invalid(
    `${path}: the task asks for ${asked.length} approvals: answer each with a data part that has its approvalId`,
  );
}

const RETRY_INTERVAL_MS = 1_000;
const INTERRUPTED = "the service stopped while the task was running";

/** The part of the approvals inbox that tasks need. */
export interface TaskApprovals {
  answer(id: string, body: AnswerApprovalRequest, from: Requester): Promise<unknown>;
  /** The statuses of questions by id, for those that exist. */
  statusOf(ids: readonly string[]): Promise<ReadonlyMap<string, string>>;
  /** Withdraws open questions. Never rejects. */
  withdraw(ids: readonly string[], reason: "cancelled"): Promise<void>;
}

interface TasksOptions {
  readonly runs: KeptRuns;
  readonly engine: Pick<Engine, "onTaskRest">;
  readonly approvals: TaskApprovals;
  readonly logger: Logger;
  /** The agents of the current generation. */
  agent(id: string): Agent | undefined;
  /** How many tasks of one user may be open. */
  openTasks(): number;
  /** Called for each task above that limit. */
  refused(): void;
}

export class Tasks {
  readonly rows: TaskRows;
  readonly #options: TasksOptions;
  readonly #openTasks: UserBound;
  /** Tasks whose runs are about to begin here. */
  readonly #beginning = new Set<string>();
  /** Of the changes of one task. */
  readonly #turns = createKeyedMutex<string>();
  /** What follows runs in the background. */
  readonly #following = new Set<Promise<unknown>>();
  /** The agents of tasks that did not follow their runs once, by task: they are looked at again until they work no more, one that fails behind the others. */
  readonly #late = new Map<string, string>();
  readonly #retries: Interval;

  constructor(rows: TaskRows, options: TasksOptions) {
    this.rows = rows;
    this.#options = options;
    this.#openTasks = new UserBound({
      count: (user, most) => rows.countOpen(user, most),
      limit: options.openTasks,
      tooMany: (limit) => `the user has ${limit} open tasks already: wait until one has ended, or cancel one`,
    });
    // Where the store is away, the row follows when the run rests.
    options.runs.onTask = (agentId, id) =>
      this.#change(agentId, id, ({ run, waiting }) => run !== undefined && waiting !== undefined, resumed).then(
        NOTHING,
        NOTHING,
      );
    options.engine.onTaskRest = (agentId, id) => {
      const following: Promise<unknown> = this.follow(agentId, id)
        .catch(() => this.#late.set(id, agentId))
        .finally(() => this.#following.delete(following));
      this.#following.add(following);
      return following;
    };
    const followLate = async () => {
      for (const [id, agentId] of [...this.#late]) {
        this.#late.delete(id);
        this.#late.set(id, agentId);
        if (!(await this.takeUp(agentId, id))) this.#late.delete(id);
      }
    };
    this.#retries = new Interval(RETRY_INTERVAL_MS, followLate, (error) =>
      options.logger.warn({ err: error }, `a task does not follow its run: ${messageOf(error)}`),
    );
    this.#retries.start();
  }

  /**
   * The task of a message, which it begins or has begun before. It is stored before its run begins: where this process is gone then, another
   * one begins it.
   *
   * @throws ServiceError `unavailable` when too many run, and when the store fails, `rate_limited` when the user has too many
   */
  async begin(agent: Agent, fresh: NewTask, principal: Principal, call: RunCall): Promise<TaskRecord> {
    const made = newRecord(agent.id, fresh, principal, call);
    const { id } = made.task;
    let run: KeptRun | undefined;
    let refused: unknown;
    try {
      run = this.#runOf(agent, made, call, false);
    } catch (error) {
      refused = error;
    }
    const userId = run?.prepared.plan.settings.memory.userId ?? "";
    const record = { ...made, run: { userId, seen: 0 } };
    this.#beginning.add(id);
    try {
      const stored = await this.#create(record, fresh.push?.(id));
      if (typeof stored !== "number") return stored;
      if (run === undefined) return await this.#end(record, endingForError(refused, call));
      await run.kept.start().catch(async (error) => {
        if ((await this.#standing(record)) === undefined) await this.rows.remove(record, stored);
        throw error;
      });
      return record;
    } catch (error) {
      // Whether it has begun is not known.
      if (isStoreUnavailable(error)) this.#late.set(id, agent.id);
      throw error;
    } finally {
      this.#beginning.delete(id);
    }
  }

  /** Resolves to its revision, or to the task that the same message has begun before. */
  async #create(record: TaskRecord, push: PushConfig | undefined): Promise<number | TaskRecord> {
    try {
      return await this.#openTasks.claim(record.owner, () => this.rows.create(record, push));
    } catch (error) {
      // A repeated message starts no task, so it must be found even at the limit.
      const isFull = error instanceof ServiceError && error.kind === "rate_limited";
      if (!isFull && !(error instanceof CommitConflict)) throw error;
      const [key, content] = record.message!;
      const known = await this.rows.ofMessage(key);
      // Another message had its id: it is found by what it says too.
      if (known !== undefined && known[1] !== content)
        return this.#create({ ...record, message: [taskMessageKey(digestOf([key, content])), content] }, push);
      // One that has not begun is written anew: it is not removed then where its run cannot begin, but begins later.
      const stays = async (told: TaskRecord) => {
        if (told.run === undefined || (await this.#standing(told)) !== undefined) return null;
        this.#late.set(told.task.id, told.agent);
        return told;
      };
      const earlier = known && (await this.#change(record.agent, known[0], isOpen, stays));
      if (earlier !== undefined) return earlier.record;
      if (isFull) this.#options.refused();
      throw isFull ? error : unavailable("the task could not begin: try again");
    }
  }

  #runOf(agent: Agent, record: TaskRecord, call: RunCall, isContested: boolean): KeptRun {
    // Another process may have begun it, because this one was taken for gone, or begun it and ended before the row said so.
    const name = { runId: record.task.id, isChosen: false, isContested, keyed: "first" } as const;
    return this.#options.runs.newRun(agent.kept, requestOf(record), call, name);
  }

  /** The task; undefined when it does not exist for this principal. */
  async find(agentId: string, id: string, principal: Principal): Promise<FoundTask | undefined> {
    const found = isTaskId(id) ? await this.rows.read(agentId, id) : undefined;
    if (found === undefined || !mayAccess(principal, found.record.owner, undefined)) return undefined;
    const { task } = found.record;
    // Of one that works, the process of its run tells at once.
    return isWorking(task) || isOver(task) ? found : this.follow(agentId, id);
  }

  /** The events of the run of a task after one of them, until it rests; undefined where there is no such run yet. */
  events({ agent, task, run }: TaskRecord, after: number): Promise<EventProducer | undefined> {
    return unlessNotFound(this.#runs.attach(agent, task.id, after, { userId: run!.userId }));
  }

  /**
   * What the agent of a task has said, as far as its row tells; undefined when its run has been removed.
   *
   * @param output what its reader knows of that already
   */
  async output(
    record: TaskRecord,
    output = new TaskOutput(record.task.artifacts, record.run?.seen),
  ): Promise<TaskOutput | undefined> {
    const told = record.run?.told ?? 0;
    if (told <= output.told) return output;
    const follow = await this.events(record, output.told);
    if (follow === undefined) return undefined;
    await output.hear(follow, {
      get closed() {
        return output.told >= told;
      },
    });
    return output;
  }

  /** The task with what its agent has said. */
  async whole(record: TaskRecord): Promise<Task | undefined> {
    const output = await this.output(record);
    return output && { ...record.task, artifacts: output.artifacts() };
  }

  /**
   * Takes the message with which a client answers. A repeated message has no further effect.
   *
   * @throws ServiceError `invalid_input` for a message that is not an answer, `conflict` for one that is too late, `forbidden` when only
   * the console may answer
   */
  async answer({ agent, task, waiting }: TaskRecord, message: Message, from: Requester): Promise<void> {
    // A repetition of the answer to an earlier question must not answer this one.
    if (waiting === undefined || hasAnsweredBefore(task, message)) return;
    const answers = readAnswers(message.parts, waiting.approvals);
    // Stored before the answers take effect, so that the task cannot continue without the message in its history.
    const isNew = ({ waiting, task }: TaskRecord) =>
      waiting !== undefined && task.history.every(({ messageId }) => messageId !== message.messageId);
    await this.#change(agent, task.id, isNew, (record) => withAnswer(record, message));
    for (const { approvalId, body } of answers) await this.#options.approvals.answer(approvalId, body, from);
    await this.follow(agent, task.id);
  }

  /** Resolves to the task afterwards: canceled, unless it had ended before. */
  async cancel(record: TaskRecord): Promise<TaskRecord | undefined> {
    const { agent, task, run, waiting } = record;
    if (isOver(task)) return record;
    if (run === undefined) {
      await this.#options.approvals.withdraw(waiting?.approvals.map(({ approvalId }) => approvalId) ?? [], "cancelled");
      return this.#end(record, CANCELED);
    }
    try {
      await this.#runs.cancel(agent, task.id, run.userId);
    } catch (error) {
      if (!(error instanceof ServiceError)) throw error;
      if (error.kind === "not_found") throw unavailable("the task is about to begin: try again");
      // It has ended meanwhile.
      if (error.kind !== "invalid_input") throw error;
    }
    return (await this.follow(agent, task.id))?.record;
  }

  /** Goes on with a task that says it works, where the process that was to tell what became of it is gone. */
  async takeUp(agentId: string, id: string): Promise<boolean> {
    const { record, revision } = (await this.follow(agentId, id)) ?? {};
    if (record === undefined || !isWorking(record.task)) return false;
    if (record.run === undefined) await this.#end(record, { state: "TASK_STATE_FAILED", reason: INTERRUPTED });
    else if (!this.#beginning.has(id) && (await this.#standing(record)) === undefined) {
      const agent = this.#options.agent(record.agent);
      // Another process may have the agent.
      if (agent === undefined && isShared(this.rows.store)) return true;
      // Written anew, so that a process which goes on does not remove it.
      if (await unlessConflict(this.rows.change(record, record, revision!))) await this.#beginAgain(agent, record);
    }
    return true;
  }

  /** Its process ended before the run was on disk. */
  async #beginAgain(agent: Agent | undefined, record: TaskRecord): Promise<void> {
    try {
      if (agent === undefined) throw new ServiceError("not_found", `agent ${record.agent} does not exist any more`);
      await this.#runOf(agent, record, this.#callFor(record), true).kept.start();
    } catch (error) {
      // Another process was faster, or it is tried again.
      if (error instanceof ServiceError && !REFUSED.has(error.kind)) return;
      await this.#end(record, endingForError(error, { requestId: "", logger: this.#options.logger }));
    }
  }

  #callFor({ origin }: TaskRecord): RunCall {
    const { user = null, caller: kind = "nobody" } = origin ?? {};
    const { logger } = this.#options;
    return { user, caller: { kind }, requestId: "", logger, trace: undefined, signal: NEVER };
  }

  /** Makes the row of a task say what became of its run. */
  follow(agentId: string, id: string): Promise<FoundTask | undefined> {
    return this.#turns.run([id], () => this.#change(agentId, id, isOpen, (record) => this.#next(record)));
  }

  /** The task as its run stands; null when its row says so already. */
  async #next(record: TaskRecord): Promise<TaskRecord | null> {
    const { task, run, waiting } = record;
    if (run === undefined) return waiting === undefined ? null : this.#nextOfOld(record);
    const standing = await this.#standing(record);
    if (standing === undefined) return null;
    const { suspension, endedAt } = standing.state;
    const open = suspension === null ? [] : await this.#open((suspension.data as RunSuspension).approvals);
    if (endedAt === null && open.length === 0) return isWorking(task) ? null : resumed(record);
    if (open.length > 0 && open.map(idOf).join() === waiting?.approvals.map(idOf).join()) return null;
    const output = new TaskOutput(task.artifacts, run.seen);
    await output.hear(standing.said(run.seen));
    const { told, metadata } = output;
    const said = { ...record, run: { ...run, told } };
    if (open.length > 0) return ended(said, { state: "TASK_STATE_INPUT_REQUIRED", approvals: open });
    const reason = `the answer is longer than ${MAX_ANSWER_CHARACTERS} characters`;
    if (output.isTooLong) return ended(record, { state: "TASK_STATE_FAILED", reason });
    return ended(said, { ...endingOf(standing), ...(metadata && { metadata }) });
  }

  /** A question that an older release has stored is one of no run: a run begins when it is answered. */
  async #nextOfOld(record: TaskRecord): Promise<TaskRecord | null> {
    const approvals = record.waiting!.approvals;
    const statuses = await this.#options.approvals.statusOf(approvals.map(idOf));
    const of = ({ approvalId }: PendingApproval) => statuses.get(approvalId) ?? "expired";
    const [first, ...others] = new Set(approvals.map(of));
    if (others.length === 0 && first === "expired") return ended(record, UNHEARD);
    if (others.length === 0 && first === "withdrawn") return ended(record, CANCELED);
    const agent = this.#options.agent(record.agent);
    if (agent === undefined || first === "open" || others.includes("open")) return null;
    const run = this.#runOf(agent, record, this.#callFor(record), true);
    await run.kept.start();
    const begun = { ...resumed(record), run: { userId: run.prepared.plan.settings.memory.userId ?? "", seen: 0 } };
    return (await this.#next(begun)) ?? begun;
  }

  async #open(approvals: readonly PendingApproval[]): Promise<PendingApproval[]> {
    const statuses = await this.#options.approvals.statusOf(approvals.map(idOf));
    return approvals.filter(({ approvalId }) => statuses.get(approvalId) === "open");
  }

  #standing({ agent, task, run }: TaskRecord): Promise<RunStanding | undefined> {
    return unlessNotFound(this.#runs.standing(agent, task.id, run!.userId));
  }

  /** Those of agents that a reload has removed are among them. */
  get #runs() {
    return this.#options.runs.for(EVERYTHING, { ofRemoved: true });
  }

  async #end(record: TaskRecord, ending: Ending): Promise<TaskRecord> {
    const change = (now: TaskRecord) => ended(now, ending);
    return (await this.#change(record.agent, record.task.id, isOpen, change))?.record ?? change(record);
  }

  /** @param change may give null when there is nothing to change. @returns the task afterwards, if there is one */
  async #change(
    agentId: string,
    id: string,
    isMeant: (record: TaskRecord) => boolean,
    change: (record: TaskRecord) => TaskRecord | null | Promise<TaskRecord | null>,
  ): Promise<FoundTask | undefined> {
    const changed = await changeInTurn("the task", async () => {
      const found = await this.rows.read(agentId, id);
      const after = found !== undefined && isMeant(found.record) ? await change(found.record) : null;
      if (after === null) return [found];
      return [{ ...found!, record: after, revision: await this.rows.change(found!.record, after, found!.revision) }];
    });
    return changed[0];
  }

  /** Waits until the rows of tasks whose runs have come to rest say so. */
  async close(): Promise<void> {
    this.#options.runs.onTask = null;
    this.#options.engine.onTaskRest = null;
    await Promise.all([this.#retries.stop(), ...this.#following]);
  }
}

const NEVER = new AbortController().signal;
const UNHEARD = { state: "TASK_STATE_REJECTED", reason: "nobody answered in time what the agent asked" } as const;
const CANCELED = { state: "TASK_STATE_CANCELED", reason: "the task was canceled" } as const;
const REFUSED: ReadonlySet<string | null> = new Set(["invalid_input", "not_found"]);
const NOTHING = () => {};
const isOpen = ({ task }: TaskRecord): boolean => !isOver(task);
const idOf = ({ approvalId }: PendingApproval): string => approvalId;

/** Whether the message came before the current question. One after it is an answer, which a crash may have kept from taking effect. */
function hasAnsweredBefore({ history, status }: TaskRecord["task"], { messageId }: Message): boolean {
  const said = history.findIndex((each) => each.messageId === messageId);
  const asked = history.findIndex((each) => each.messageId === status.message?.messageId);
  return said !== -1 && (asked === -1 || said < asked);
}

/** How a task ends whose run has ended. */
function endingOf({ state: { status, error, cancellation }, failure: kind }: RunStanding): Ending {
  if (status === "completed") return { state: "TASK_STATE_COMPLETED" };
  if (error !== null) return failure(kind, error.message);
  return cancellation?.reason === "expired" ? UNHEARD : CANCELED;
}

/** An error that the caller could have avoided rejects the task; any other fails it. */
const failure = (kind: string | null, reason: string): Ending => ({
  state: REFUSED.has(kind) ? "TASK_STATE_REJECTED" : "TASK_STATE_FAILED",
  reason,
});

function endingForError(error: unknown, { requestId, logger }: Pick<RunCall, "requestId" | "logger">): Ending {
  if (error instanceof ServiceError) return failure(error.kind, error.message);
  logger.error({ err: error }, messageOf(error));
  return failure(null, `internal error (request id ${requestId})`);
}
