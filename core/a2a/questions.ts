/** The questions that agents of tasks ask people: takes answers, and continues a task once all its questions are answered. */
import type { Logger } from "pino";
import type { AnswerApprovalRequest } from "../../generated/types.ts";
import type { Agent } from "../agents/agent.ts";
import type { Delivery } from "../approvals/upkeep.ts";
import type { Requester } from "../identity/principal.ts";
import { storedTime } from "../lib/clock.ts";
import { ServiceError } from "../lib/errors.ts";
import { changeInTurn } from "../storage/conflict.ts";
import { readAnswers } from "./answers.ts";
import { ended, isOver, isWorking, type Message, type Task, type TaskRecord, withAnswer } from "./task.ts";
import type { FoundTask } from "./task-rows.ts";
import type { TaskCaller, Tasks } from "./tasks.ts";

/** The part of the approvals inbox that tasks need. */
export interface TaskApprovals {
  answer(id: string, body: AnswerApprovalRequest, from: Requester): Promise<unknown>;
  /** The statuses of questions by id, for those that exist. */
  statusOf(ids: readonly string[]): Promise<ReadonlyMap<string, string>>;
  /** Withdraws the open questions of a place, which `approvalPlace` names. Never rejects. */
  withdrawAt(place: string, reason: "cancelled" | "ended"): Promise<void>;
}

/** An answer to a question of a task's agent. */
export interface Answered {
  readonly taskId?: string | undefined;
  readonly agentId?: string | undefined;
}

interface QuestionsOptions {
  readonly approvals: TaskApprovals;
  /** The agents of the current generation. */
  agent(id: string): Agent | undefined;
  readonly logger: Logger;
}

export class Questions {
  readonly #tasks: Tasks;
  readonly #options: QuestionsOptions;

  constructor(tasks: Tasks, options: QuestionsOptions) {
    this.#tasks = tasks;
    this.#options = options;
  }

  /**
   * Takes the message with which a client answers. A repeated message has no further effect.
   *
   * @throws ServiceError `invalid_input` for a message that is not an answer, `conflict` for one that is too late, `forbidden` when only
   * the console may answer
   */
  async answer(record: TaskRecord, message: Message, from: TaskCaller): Promise<void> {
    const { agent, task, waiting } = record;
    // A repetition of the answer to an earlier question must not answer this one.
    if (waiting === undefined || hasAnsweredBefore(task, message)) return;
    const answers = readAnswers(message.parts, waiting.approvals);
    // Stored before the answers take effect, so that the task cannot continue without the message in its history.
    await this.#change(agent, task.id, (found) =>
      found.task.history.some(({ messageId }) => messageId === message.messageId)
        ? null
        : withAnswer(found, message, storedTime()),
    );
    for (const { approvalId, body } of answers) await this.#options.approvals.answer(approvalId, body, from);
    await this.goOn(agent, task.id, from);
  }

  /** Called when a question of the task has been answered, or has expired. */
  async tell({ taskId = "", agentId = "" }: Answered): Promise<Delivery> {
    try {
      return await this.goOn(agentId, taskId);
    } catch (error) {
      if (error instanceof ServiceError && error.kind === "unavailable") return "later";
      throw error;
    }
  }

  /**
   * Continues the task, if all its questions are answered.
   *
   * @param by the request with the last answer; undefined when the answer came in another way
   */
  goOn(agentId: string, taskId: string, by?: TaskCaller): Promise<Delivery> {
    return changeInTurn("the task", async () => {
      const found = await this.#tasks.rows.read(agentId, taskId);
      if (found === undefined || isOver(found.record.task)) return "gone";
      const { waiting } = found.record;
      // The task has not written its question yet, or has continued already.
      if (isWorking(found.record.task) || waiting === undefined) return "later";
      const statuses = await this.#options.approvals.statusOf(waiting.approvals.map(({ approvalId }) => approvalId));
      const of = (approvalId: string) => statuses.get(approvalId) ?? "expired";
      const open = waiting.approvals.filter(({ approvalId }) => of(approvalId) === "open");
      const all = (status: string) => waiting.approvals.every(({ approvalId }) => of(approvalId) === status);
      if (open.length > 0) await this.#askRest(found, new Set(open));
      else if (all("expired")) await this.#tasks.end(found, EXPIRED);
      else if (all("withdrawn")) await this.#tasks.end(found, WITHDRAWN);
      else await this.#resume(found, by);
      return "gone";
    });
  }

  async #askRest(found: FoundTask, open: ReadonlySet<object>): Promise<void> {
    const { record, revision } = found;
    const { input, approvals } = record.waiting!;
    const rest = approvals.map((each) => (open.has(each) ? each : { ...each, answered: true as const }));
    if (rest.every(({ answered }, index) => answered === approvals[index]!.answered)) return;
    const ending = { state: "TASK_STATE_INPUT_REQUIRED", waiting: { input, approvals: rest } } as const;
    await this.#tasks.rows.change(record, ended(record, ending, storedTime()), revision);
  }

  async #resume(found: FoundTask, by: TaskCaller | undefined): Promise<void> {
    const { record } = found;
    const agent = this.#options.agent(record.agent);
    if (agent === undefined) {
      const reason = `agent ${JSON.stringify(record.agent)} does not exist any more`;
      return this.#tasks.end(found, { state: "TASK_STATE_FAILED", reason });
    }
    const { user = null, caller: kind = "nobody" } = record.origin ?? {};
    const { requestId = "", logger = this.#options.logger, trace } = by ?? {};
    await this.#tasks.resume(found, record.waiting!, agent, { user, caller: { kind }, requestId, logger, trace });
  }

  async #change(agent: string, id: string, change: (record: TaskRecord) => TaskRecord | null): Promise<void> {
    await changeInTurn("the task", async () => {
      const found = await this.#tasks.rows.read(agent, id);
      const after = found?.record.waiting === undefined ? null : change(found.record);
      return after === null ? null : this.#tasks.rows.change(found!.record, after, found!.revision);
    });
  }
}

/** Whether the message came before the current question. One after it is an answer, which a crash may have kept from taking effect. */
function hasAnsweredBefore({ history, status }: Task, { messageId }: Message): boolean {
  const said = history.findIndex((each) => each.messageId === messageId);
  const asked = history.findIndex((each) => each.messageId === status.message?.messageId);
  return said !== -1 && (asked === -1 || said < asked);
}

const WITHDRAWN = { state: "TASK_STATE_CANCELED", reason: "what the agent asked was withdrawn" } as const;
const EXPIRED = { state: "TASK_STATE_REJECTED", reason: "nobody answered in time what the agent asked" } as const;
