/** A new task: its record, and what its agent is asked. */
import { randomUUID } from "node:crypto";
import { pushUiMessage } from "../agents/prompt/model-input.ts";
import type { KeptRequest } from "../agents/run-requests.ts";
import { ownerOf, type Principal, type Requester } from "../identity/principal.ts";
import { storedTime } from "../lib/clock.ts";
import { invalid } from "../lib/errors.ts";
import { digestOf } from "../storage/keys.ts";
import type { PushConfig } from "./push-config.ts";
import type { Message, Part, Task, TaskRecord } from "./task.ts";
import { newTaskId } from "./task-ids.ts";
import { taskMessageKey } from "./task-rows.ts";

/** The data of a new task. */
export interface NewTask {
  /** The message without the ids of the task and its context. */
  readonly message: Omit<Message, "taskId" | "contextId">;
  /** The context that its client names; default: a new one. */
  readonly contextId: string | undefined;
  readonly context: Record<string, unknown> | undefined;
  /** Makes the push configuration, given the id of the task. */
  readonly push?: (task: string) => PushConfig;
}

/**
 * The record of a new task. A repeated message of the same owner finds it by a digest, because clients choose how long ids are.
 *
 * @throws ServiceError `invalid_input` for parts that agents do not accept
 */
export function newRecord(
  agent: string,
  { message, contextId: named, context }: NewTask,
  principal: Principal,
  { user, caller }: Requester,
): TaskRecord {
  // Checked here already, so that errors name the fields of the client's message.
  pushUiMessage([], inputMessage(message), "params.message");
  const contextId = named || randomUUID();
  const now = storedTime();
  const id = newTaskId(now);
  const owner = ownerOf(principal);
  const status = { state: "TASK_STATE_WORKING", timestamp: new Date(now).toISOString() } as const;
  const task: Task = { id, contextId, status, artifacts: [], history: [{ ...message, taskId: id, contextId }] };
  const origin = { user, caller: caller.kind, ...(context !== undefined && { context }) };
  const key = taskMessageKey(digestOf([agent, owner, message.messageId]));
  // Of everything in the client's message, to recognise a repeated one.
  const content = digestOf([named, message, context]);
  return { agent, owner, updatedAt: now, task, origin, message: [key, content] };
}

/** What the agent of a task is asked. */
export function requestOf({ task, origin, waiting }: TaskRecord): KeptRequest {
  const earlier = waiting?.input;
  return {
    input: earlier ?? [inputMessage(task.history[0]!)],
    options: { memory: { conversationId: task.contextId }, ...(origin?.context && { context: origin.context }) },
    clientKnowsMessageId: true,
    isTask: true,
    // It brings the calls that were answered.
    ...(earlier !== undefined && { runsTools: true }),
  };
}

const inputMessage = ({ parts }: Pick<Message, "parts">) => ({ role: "user", parts: parts.map(inputPart) });

function inputPart(part: Part, index: number): object {
  if (part.text !== undefined) return { type: "text", text: part.text };
  const { raw, url, filename } = part;
  if (raw === undefined && url === undefined) return { type: "text", text: JSON.stringify(part.data ?? null) };
  const mediaType = part.mediaType?.split(";", 1)[0]?.trim();
  const named = filename === undefined ? {} : { filename };
  if (!mediaType && (raw !== undefined || !/^data:/i.test(url!)))
    throw invalid(`params.message.parts[${index}]: a file needs its media type`);
  return { type: "file", url: url ?? `data:${mediaType};base64,${raw}`, mediaType, ...named };
}
