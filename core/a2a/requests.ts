/**
 * The methods of A2A, for one request. The SDK's own request handler is not used: it stores the whole task with every word of an
 * agent, and stops storing it when the client leaves, although the task must continue.
 */
import {
  type AgentCard,
  type CancelTaskRequest,
  AgentCard as CardCodec,
  type DeleteTaskPushNotificationConfigRequest,
  type GetTaskPushNotificationConfigRequest,
  type GetTaskRequest,
  type ListTaskPushNotificationConfigsRequest,
  type ListTasksRequest,
  type ListTasksResponse,
  type SendMessageRequest,
  StreamResponse as StreamCodec,
  type StreamResponse,
  type SubscribeToTaskRequest,
  Task as TaskCodec,
  type TaskPushNotificationConfig,
  TaskState,
  taskStateToJSON,
  Message as WireMessage,
} from "@a2a-js/sdk";
import { TaskNotCancelableError, UnsupportedOperationError } from "@a2a-js/sdk/errors";
import type { A2ARequestHandler, ServerCallContext } from "@a2a-js/sdk/server";
import { defaults } from "../../generated/defaults.ts";
import type { Agent } from "../agents/agent.ts";
import type { RunCall } from "../agents/run/caller.ts";
import { ownerOf, type Principal } from "../identity/principal.ts";
import { invalid } from "../lib/errors.ts";
import type { EventSink } from "../lib/event-sink.ts";
import { idOfRow, placeOfRow } from "../storage/collection.ts";
import { encodeNumber } from "../storage/keys.ts";
import { allRows, inTurn, Watch } from "../storage/ranges.ts";
import type { Row } from "../storage/store.ts";
import { a2aError, taskNotFound } from "./errors.ts";
import type { NewTask } from "./new-task.ts";
import { type ArtifactUpdate, charactersOf } from "./output.ts";
import type { Version } from "./params.ts";
import type { PushConfigs } from "./push-configs.ts";
import { isOver, isWorking, type Message, type Task, type TaskRecord } from "./task.ts";
import { isTaskId } from "./task-ids.ts";
import type { IndexValue } from "./task-rows.ts";
import type { Tasks } from "./tasks.ts";

/* `ListTasks`: the tasks of an agent that a principal may see, the most recently changed first. */

type Findable = Pick<Tasks, "rows" | "find" | "whole">;

/** Index rows that one request reads: older tasks are not found. */
const MAX_SCANNED_ROWS = 10_000;
/** A page ends early when its stored tasks exceed this size. */
const MAX_PAGE_CHARACTERS = 2 * 1024 * 1024;

interface TaskListQuery {
  readonly contextId: string | undefined;
  readonly state: string | undefined;
  /** Milliseconds since 1970, exclusive. */
  readonly after: number | undefined;
  readonly pageSize: number;
  /** Empty for the first page. */
  readonly pageToken: string;
  readonly includeArtifacts: boolean;
}

interface TaskPage {
  readonly tasks: Task[];
  /** Empty on the last page. */
  readonly nextPageToken: string;
  readonly pageSize: number;
  /** Number of tasks on all pages. */
  readonly totalSize: number;
}

/** @throws ServiceError `invalid_input` for a page token that no list has returned */
export async function listTasks(
  tasks: Findable,
  agent: string,
  query: TaskListQuery,
  principal: Principal,
): Promise<TaskPage> {
  const prefix = tasks.rows.of(agent).listOf(principal.isolated ? { owner: ownerOf(principal) } : {});
  const from = query.pageToken === "" ? undefined : prefix + parsePageToken(query.pageToken);
  const { pageSize } = query;
  let totalSize = 0;
  const rows: Row[] = [];
  for await (const row of newestFirst(tasks, prefix)) {
    if (query.after !== undefined && placeOfRow(row) <= query.after) break;
    const [state, contextId]: IndexValue = JSON.parse(row.value);
    if (query.state !== undefined && state !== query.state) continue;
    if (query.contextId !== undefined && contextId !== query.contextId) continue;
    totalSize++;
    if ((from === undefined || row.key < from) && rows.length <= pageSize) rows.push(row);
  }
  const found: Task[] = [];
  let size = 0;
  const read = async (id: string) => {
    const seen = await tasks.find(agent, id, principal);
    if (seen === undefined) return;
    const { task } = seen.record;
    const shown = query.includeArtifacts ? await tasks.whole(seen.record) : { ...task, artifacts: [] };
    if (shown === undefined) return;
    found.push(shown);
    size += seen.size + charactersOf(shown.artifacts);
  };
  let taken = 0;
  while (taken < Math.min(rows.length, pageSize) && size < MAX_PAGE_CHARACTERS) {
    const id = idOfRow(rows[taken++]!);
    await inTurn(() => read(id));
  }
  const nextPageToken = rows.length > taken ? pageToken(rows[taken - 1]!) : "";
  return { tasks: found, nextPageToken, pageSize, totalSize };
}

async function* newestFirst({ rows: { store } }: Findable, prefix: string): AsyncGenerator<Row> {
  let left = MAX_SCANNED_ROWS;
  for await (const rows of allRows(store, { prefix, reverse: true })) {
    yield* rows.slice(0, left);
    left -= rows.length;
    if (left <= 0) return;
  }
}

const pageToken = (row: Row): string => Buffer.from(`${placeOfRow(row)}/${idOfRow(row)}`).toString("base64url");

function parsePageToken(token: string): string {
  const [updatedAt = "", task = ""] = Buffer.from(token, "base64url").toString().split("/");
  if (!/^\d{1,13}$/.test(updatedAt) || !isTaskId(task)) throw invalid("params.pageToken must be one that a list gave");
  return `${encodeNumber(Number(updatedAt))}/${task}`;
}

/* The events of a task, for clients that stream it. */

type TaskEvent =
  | { readonly task: Task }
  | (ArtifactUpdate & { readonly of: Task })
  /** The end of the task, or the question of its agent. */
  | { readonly endOf: TaskRecord };

/** Pause between two reads of a task that waits. */
const POLL_INTERVAL_MS = 250;

/**
 * Yields the task as it is now, what its agent says from then on, and its end or its question. One that waits for an answer is followed
 * until it has continued. Stops when `signal` aborts; the task continues.
 */
async function* followTask(tasks: Tasks, found: TaskRecord, signal: AbortSignal): AsyncGenerator<TaskEvent> {
  const { agent, task } = found;
  const output = await tasks.output(found);
  if (output === undefined) return;
  const watch = new Watch(tasks.rows.store, tasks.rows.of(agent).key(task.id));
  let now = found;
  let hasLeft = false;
  const reader: Partial<EventSink> = {
    get closed() {
      return hasLeft || signal.aborted;
    },
    onLeave: (listener) => signal.addEventListener("abort", listener),
  };
  try {
    yield { task: { ...task, artifacts: output.artifacts() } };
    output.news();
    while (!signal.aborted) {
      const follow = now.run !== undefined && isWorking(now.task) ? await tasks.events(now, output.told) : undefined;
      if (follow === undefined) await watch.wait(POLL_INTERVAL_MS, signal);
      else {
        let wake = () => {};
        let isOpen = true;
        const following = output
          .hear(follow, reader, () => wake())
          .finally(() => {
            isOpen = false;
            wake();
          });
        following.catch(() => {});
        while (isOpen || output.hasNews) {
          for (const update of output.news()) yield { ...update, of: task };
          // More may have been said while the reader handled the last one.
          if (isOpen && !output.hasNews)
            await new Promise<void>((resolve) => {
              wake = resolve;
            });
        }
        await following;
      }
      if (signal.aborted) return;
      const read = follow === undefined ? tasks.rows.read(agent, task.id) : tasks.follow(agent, task.id);
      const next = (await read)?.record;
      if (next === undefined) return;
      const isSame = next.task.status.message?.messageId === now.task.status.message?.messageId;
      if (!isWorking(next.task) && (isWorking(now.task) || !isSame)) {
        // It may have gone on, and come to this, between two looks.
        await tasks.output(next, output);
        for (const update of output.news()) yield { ...update, of: task };
        yield { endOf: next };
        return;
      }
      // It goes on, though not here any more: its next process may have to take it up first.
      if (follow !== undefined && isWorking(next.task)) await watch.wait(POLL_INTERVAL_MS, signal);
      now = next;
    }
  } finally {
    hasLeft = true;
    watch.end();
  }
}

interface RequestSource {
  readonly agent: Agent;
  /** Its card, as JSON. */
  readonly card: () => string;
  readonly tasks: Tasks;
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
      const record = await this.#take(request, requestedVersion as Version);
      const { returnImmediately, historyLength } = request.configuration ?? {};
      return this.#reply(returnImmediately ? record : await this.#settled(record), historyLength);
    });
  }

  /** The task when it has ended or asks a question, or when the reply can wait no longer. */
  async #settled(record: TaskRecord): Promise<TaskRecord> {
    if (!isWorking(record.task)) return record;
    const { tasks, call, until } = this.#source;
    const limit = AbortSignal.any([
      call.signal,
      AbortSignal.timeout(Math.max(Math.ceil(until - performance.now()), 0)),
    ]);
    for await (const event of followTask(tasks, record, limit)) if ("endOf" in event) return event.endOf;
    return this.#find(record.task.id);
  }

  async *sendMessageStream(
    request: SendMessageRequest,
    { requestedVersion }: ServerCallContext,
  ): AsyncGenerator<StreamResponse, void, undefined> {
    const { historyLength } = request.configuration ?? {};
    const record = await this.#guard(() => this.#take(request, requestedVersion as Version));
    if (isWorking(record.task)) yield* this.#follow(record, historyLength);
    else yield { payload: { $case: "task", value: await this.#guard(() => this.#reply(record, historyLength)) } };
  }

  /** The task that the message starts, has started before, or continues. */
  async #take(request: SendMessageRequest, version: Version): Promise<TaskRecord> {
    const { agent, tasks, configs, principal, call } = this.#source;
    const { taskId, contextId, ...message } = WireMessage.toJSON(request.message!) as Message;
    const push = configs.ofMessage(request, version);
    if (taskId) return this.#answer(taskId, message, push);
    const fresh = { message, contextId, context: request.metadata, ...(push && { push }) };
    return tasks.begin(agent, fresh, principal, call);
  }

  /** Takes a message to a task as the answer to its question. */
  async #answer(id: string, message: NewTask["message"], push: NewTask["push"]): Promise<TaskRecord> {
    const { tasks, configs, call } = this.#source;
    const record = await this.#find(id);
    const { task } = record;
    const { contextId } = task;
    if (isOver(task) || isWorking(task)) {
      // A repeated answer, whose reply was lost.
      if (task.history.some(({ messageId }) => messageId === message.messageId)) return record;
      const why = isOver(task) ? "has ended" : "is running";
      throw new UnsupportedOperationError(
        `task ${id} ${why} and takes no messages: leave taskId out, and go on with contextId ${contextId}`,
      );
    }
    if (push !== undefined) await configs.set(id, push);
    await tasks.answer(record, { ...message, taskId: id, contextId }, call);
    return await this.#find(id);
  }

  async #find(id: string): Promise<TaskRecord> {
    const { agent, tasks, principal } = this.#source;
    const found = await tasks.find(agent.id, id, principal);
    if (found === undefined) throw taskNotFound(id);
    return found.record;
  }

  async getTask({ id, historyLength }: GetTaskRequest) {
    return this.#guard(async () => this.#reply(await this.#find(id), historyLength));
  }

  async #reply(record: TaskRecord, historyLength?: number) {
    const task = await this.#source.tasks.whole(record);
    if (task === undefined) throw taskNotFound(record.task.id);
    return taskReply(task, historyLength);
  }

  async listTasks(request: ListTasksRequest): Promise<ListTasksResponse> {
    return this.#guard(async () => {
      const { agent, tasks, principal } = this.#source;
      const { contextId, status, statusTimestampAfter, pageToken, includeArtifacts = false } = request;
      const query = {
        contextId: contextId || undefined,
        state: status === TaskState.TASK_STATE_UNSPECIFIED ? undefined : taskStateToJSON(status),
        after: statusTimestampAfter === undefined ? undefined : parseTime(statusTimestampAfter),
        pageSize: request.pageSize ?? defaults.PeerTaskListRequest.params.pageSize,
        pageToken,
        includeArtifacts,
      };
      const page = await listTasks(tasks, agent.id, query, principal);
      return { ...page, tasks: page.tasks.map((task) => taskReply(task, request.historyLength)) };
    });
  }

  async cancelTask({ id }: CancelTaskRequest) {
    return this.#guard(async () => {
      const record = await this.#source.tasks.cancel(await this.#find(id));
      if (record === undefined) throw taskNotFound(id);
      if (record.task.status.state !== "TASK_STATE_CANCELED")
        throw new TaskNotCancelableError(`task ${id} has ended and cannot be canceled`);
      return this.#reply(record);
    });
  }

  async *resubscribe({ id }: SubscribeToTaskRequest): AsyncGenerator<StreamResponse, void, undefined> {
    const record = await this.#guard(() => this.#find(id));
    if (isOver(record.task)) throw new UnsupportedOperationError(`task ${id} has ended: ask for the task instead`);
    yield* this.#follow(record);
  }

  async *#follow(record: TaskRecord, historyLength?: number): AsyncGenerator<StreamResponse> {
    const { tasks, call } = this.#source;
    try {
      for await (const event of followTask(tasks, record, call.signal))
        yield StreamCodec.fromJSON(wireEvent(event, historyLength));
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
    const { id, contextId, status, metadata } = event.endOf.task;
    return { statusUpdate: { taskId: id, contextId, status, metadata } };
  }
  const { of, artifact, append } = event;
  return { artifactUpdate: { taskId: of.id, contextId: of.contextId, artifact, append, lastChunk: false } };
}
