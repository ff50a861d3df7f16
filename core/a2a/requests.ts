/**
 * The methods of A2A, for one request. The SDK's own request handler is not used: it stores the whole task with every word of an
 * agent, and stops storing it when the client leaves, although the task must continue.
 */
import type {
  AgentCard,
  CancelTaskRequest,
  DeleteTaskPushNotificationConfigRequest,
  GetTaskPushNotificationConfigRequest,
  GetTaskRequest,
  ListTaskPushNotificationConfigsRequest,
  ListTasksRequest,
  ListTasksResponse,
  SendMessageRequest,
  StreamResponse,
  SubscribeToTaskRequest,
  TaskPushNotificationConfig,
} from "@a2a-js/sdk";
import {
  AgentCard as CardCodec,
  StreamResponse as StreamCodec,
  Task as TaskCodec,
  TaskState,
  taskStateToJSON,
} from "@a2a-js/sdk";
import { TaskNotCancelableError, UnsupportedOperationError } from "@a2a-js/sdk/errors";
import type { A2ARequestHandler, ServerCallContext } from "@a2a-js/sdk/server";
import { defaults } from "../../generated/defaults.ts";
import type { Agent, RunCall } from "../agents/agent.ts";
import type { Principal } from "../identity/principal.ts";
import { invalid } from "../lib/errors.ts";
import { a2aError, taskNotFound } from "./errors.ts";
import { followRemoteTask, followRun, streamRun, type TaskEvent } from "./follow.ts";
import { answerMessage, newTask, RepeatedMessage } from "./new-task.ts";
import type { Version } from "./params.ts";
import type { PushConfig } from "./push-config.ts";
import type { PushConfigs } from "./push-configs.ts";
import type { Questions } from "./questions.ts";
import { settled } from "./settled.ts";
import { isOver, isWorking, type Task } from "./task.ts";
import { listTasks } from "./task-list.ts";
import type { SeenTask } from "./task-run.ts";
import type { Tasks } from "./tasks.ts";

interface RequestSource {
  readonly agent: Agent;
  /** Its card, as JSON. */
  readonly card: () => string;
  readonly tasks: Tasks;
  readonly questions: Questions;
  readonly configs: PushConfigs;
  readonly principal: Principal;
  readonly call: RunCall;
  /** Until when a reply may wait for the end of its task, on the clock of `performance.now()`. */
  readonly until: number;
}

export class Requests implements A2ARequestHandler {
  readonly #source: RequestSource;

  constructor(source: RequestSource) {
    this.#source = source;
  }

  async getAgentCard(): Promise<AgentCard> {
    return CardCodec.fromJSON(JSON.parse(this.#source.card()));
  }

  async getAuthenticatedExtendedAgentCard(): Promise<never> {
    throw new UnsupportedOperationError("there is one card of an agent, for everybody");
  }

  /** Replies when the task has ended or asks a question, or when the reply can wait no longer. */
  async sendMessage(request: SendMessageRequest, { requestedVersion }: ServerCallContext) {
    return this.#guard(async () => {
      const { agent, tasks, principal, call, until } = this.#source;
      const seen = await this.#take(request, requestedVersion as Version);
      const { returnImmediately, historyLength } = request.configuration ?? {};
      if (returnImmediately) return taskReply(seen.run?.snapshot() ?? seen.task, historyLength);
      const rest = Math.max(until - performance.now(), 0);
      return taskReply(await settled(tasks, { agent: agent.id, seen, principal }, call.signal, rest), historyLength);
    });
  }

  async *sendMessageStream(
    request: SendMessageRequest,
    { requestedVersion }: ServerCallContext,
  ): AsyncGenerator<StreamResponse, void, undefined> {
    const { historyLength } = request.configuration ?? {};
    const seen = await this.#guard(() => this.#take(request, requestedVersion as Version));
    const { task, run } = seen;
    if (run !== undefined && run.record.task === run.beginning)
      yield* this.#stream(streamRun(run, this.#source.call.signal), historyLength);
    else if (isWorking(task)) yield* this.#stream(this.#follow(seen), historyLength);
    else yield StreamCodec.fromJSON(wireEvent({ task }, historyLength));
  }

  /** The task that the message starts, has started before, or continues. */
  async #take(request: SendMessageRequest, version: Version): Promise<SeenTask> {
    const { agent, tasks, configs, principal, call } = this.#source;
    const { message } = request;
    const push = configs.ofMessage(request, version);
    if (message?.taskId) return this.#answer(request, message.taskId, push);
    try {
      const run = await tasks.begin(agent, { ...newTask(request), ...(push && { push }) }, principal, call);
      return { task: run.record.task, run, size: 0 };
    } catch (error) {
      if (error instanceof RepeatedMessage) return this.#find(error.task);
      throw error;
    }
  }

  /** Takes a message to a task as the answer to its question. */
  async #answer(request: SendMessageRequest, id: string, push?: (task: string) => PushConfig): Promise<SeenTask> {
    const { agent, tasks, questions, configs, call } = this.#source;
    const seen = await this.#find(id);
    const { task } = seen;
    // A repeated answer, whose reply was lost.
    const isRepeated = task.history.some(({ messageId }) => messageId === request.message!.messageId);
    if (isOver(task) || isWorking(task)) {
      if (isRepeated) return seen;
      const why = isOver(task) ? "has ended" : "is running";
      throw new UnsupportedOperationError(
        `task ${id} ${why} and takes no messages: leave taskId out, and go on with contextId ${task.contextId}`,
      );
    }
    if (push !== undefined) await configs.set(id, push);
    const found = await tasks.rows.read(agent.id, id);
    if (found !== undefined) await questions.answer(found.record, answerMessage(request, task), call);
    return this.#find(id);
  }

  #follow({ task, run }: SeenTask): AsyncGenerator<TaskEvent> {
    const { agent, tasks, principal, call } = this.#source;
    if (run !== undefined) return followRun(run, call.signal);
    return followRemoteTask(tasks, { agent: agent.id, task }, principal, call.signal);
  }

  async #find(id: string): Promise<SeenTask> {
    const { agent, tasks, principal } = this.#source;
    const found = await tasks.find(agent.id, id, principal);
    if (found === undefined) throw taskNotFound(id);
    return found;
  }

  async getTask({ id, historyLength }: GetTaskRequest) {
    return this.#guard(async () => taskReply((await this.#find(id)).task, historyLength));
  }

  async listTasks(request: ListTasksRequest): Promise<ListTasksResponse> {
    return this.#guard(async () => {
      const { agent, tasks, principal } = this.#source;
      const { contextId, status, statusTimestampAfter, pageToken } = request;
      const query = {
        contextId: contextId || undefined,
        state: status === TaskState.TASK_STATE_UNSPECIFIED ? undefined : taskStateToJSON(status),
        after: statusTimestampAfter === undefined ? undefined : parseTime(statusTimestampAfter),
        pageSize: request.pageSize ?? defaults.PeerTaskListRequest.params.pageSize,
        pageToken,
      };
      const page = await listTasks(tasks, agent.id, query, principal);
      const withoutArtifacts = (task: Task) => (request.includeArtifacts ? task : { ...task, artifacts: [] });
      return { ...page, tasks: page.tasks.map((task) => taskReply(withoutArtifacts(task), request.historyLength)) };
    });
  }

  async cancelTask({ id }: CancelTaskRequest) {
    return this.#guard(async () => {
      const { agent, tasks, principal } = this.#source;
      const task = await tasks.cancel(agent.id, id, principal);
      if (task === undefined) throw taskNotFound(id);
      if (task.status.state !== "TASK_STATE_CANCELED")
        throw new TaskNotCancelableError(`task ${task.id} has ended and cannot be canceled`);
      return taskReply(task);
    });
  }

  async *resubscribe({ id }: SubscribeToTaskRequest): AsyncGenerator<StreamResponse, void, undefined> {
    const seen = await this.#guard(() => this.#find(id));
    if (isOver(seen.task)) throw new UnsupportedOperationError(`task ${id} has ended: ask for the task instead`);
    yield* this.#stream(this.#follow(seen));
  }

  async *#stream(events: AsyncGenerator<TaskEvent>, historyLength?: number): AsyncGenerator<StreamResponse> {
    try {
      for await (const event of events) yield StreamCodec.fromJSON(wireEvent(event, historyLength));
    } catch (error) {
      throw a2aError(error, this.#source.call);
    }
  }

  createTaskPushNotificationConfig(config: TaskPushNotificationConfig, { requestedVersion }: ServerCallContext) {
    return this.#guard(() => this.#source.configs.create(config, requestedVersion as Version));
  }

  getTaskPushNotificationConfig({ taskId, id }: GetTaskPushNotificationConfigRequest) {
    return this.#guard(() => this.#source.configs.get(taskId, id));
  }

  listTaskPushNotificationConfigs({ taskId }: ListTaskPushNotificationConfigsRequest) {
    return this.#guard(() => this.#source.configs.list(taskId));
  }

  deleteTaskPushNotificationConfig({ taskId, id }: DeleteTaskPushNotificationConfigRequest) {
    return this.#guard(() => this.#source.configs.delete(taskId, id));
  }

  async #guard<T>(work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (error) {
      throw a2aError(error, this.#source.call);
    }
  }
}

function parseTime(text: string): number {
  const time = Date.parse(text);
  if (Number.isNaN(time)) throw invalid("params.statusTimestampAfter must be a time such as 2026-01-31T09:30:00Z");
  return time;
}

const withHistory = (task: Task, length: number | undefined): Task =>
  length === undefined ? task : { ...task, history: length === 0 ? [] : task.history.slice(-length) };

const taskReply = (task: Task, historyLength?: number) => TaskCodec.fromJSON(withHistory(task, historyLength));

/** An event in the format of A2A 1.0. */
function wireEvent(event: TaskEvent, historyLength: number | undefined): object {
  if ("task" in event) return { task: withHistory(event.task, historyLength) };
  if ("endOf" in event) {
    const { id, contextId, status, metadata } = event.endOf;
    return { statusUpdate: { taskId: id, contextId, status, metadata } };
  }
  const { of, artifact, append } = event;
  return { artifactUpdate: { taskId: of.id, contextId: of.contextId, artifact, append, lastChunk: false } };
}
