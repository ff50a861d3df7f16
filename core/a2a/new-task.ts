/** Turns an A2A message into the input of an agent. */
import { createHash, randomUUID } from "node:crypto";
import type { SendMessageRequest } from "@a2a-js/sdk";
import { Message as WireMessage } from "@a2a-js/sdk";
import type { GenerateBody } from "../agents/agent.ts";
import { pushUiMessage } from "../agents/prompt/ui-input.ts";
import { ownerOf } from "../identity/ownership.ts";
import type { Principal, Requester } from "../identity/principal.ts";
import { canonicalJson } from "../lib/canonical-json.ts";
import { storedTime } from "../lib/clock.ts";
import { invalid } from "../lib/errors.ts";
import { taskMessageKey } from "../storage/keys.ts";
import type { PushConfig } from "./push-config.ts";
import type { Message, Part, Task, TaskRecord } from "./task.ts";
import { newTaskId } from "./task-ids.ts";

/** The data of a new task. */
export interface NewTask {
  /** The message without the ids of the task and its context. */
  readonly message: Omit<Message, "taskId" | "contextId">;
  readonly contextId: string;
  readonly body: GenerateBody;
  /** Digest of everything in the client's message, to recognise a repeated one. */
  readonly content: string;
  /** Makes the push configuration, given the id of the task. */
  readonly push?: (task: string) => PushConfig;
}

/** The record of a new task. A repeated message of the same owner finds it by a digest, because clients choose how long ids are. */
export function newRecord(
  agent: string,
  fresh: NewTask,
  principal: Principal,
  { user, caller }: Requester,
): TaskRecord {
  const { message, contextId, body, content } = fresh;
  const now = storedTime();
  const id = newTaskId(now);
  const owner = ownerOf(principal);
  const status = { state: "TASK_STATE_WORKING", timestamp: new Date(now).toISOString() } as const;
  const task: Task = { id, contextId, status, artifacts: [], history: [{ ...message, taskId: id, contextId }] };
  const { context } = body.options ?? {};
  const origin = { user, caller: caller.kind, ...(context !== undefined && { context }) };
  const key = taskMessageKey(digest([agent, owner, message.messageId]));
  return { agent, owner, createdAt: now, updatedAt: now, task, origin, message: [key, content] };
}

const digest = (value: unknown): string => createHash("sha256").update(canonicalJson(value)).digest("base64url");

/** The message has started a task before. */
export class RepeatedMessage extends Error {
  readonly task: string;

  constructor(task: string) {
    super("the message has begun a task before");
    this.task = task;
  }
}

/** @throws ServiceError `invalid_input` for parts that agents do not accept */
export function newTask({ message, metadata }: SendMessageRequest): NewTask {
  const { taskId, contextId, ...said } = WireMessage.toJSON(message!) as Message;
  const context = contextId || randomUUID();
  const input = { role: "user", parts: said.parts.map(inputPart) };
  // Checked here already, so that errors name the fields of the client's message.
  pushUiMessage([], input, "params.message");
  const options: GenerateBody["options"] = { memory: { conversationId: context } };
  if (metadata !== undefined) options.context = metadata;
  const content = digest([contextId, said, metadata]);
  return { message: said, contextId: context, body: { input: [input], options }, content };
}

/** The message with which a client answers the question of a task. */
export function answerMessage({ message }: SendMessageRequest, { id, contextId }: Task): Message {
  return { ...(WireMessage.toJSON(message!) as Message), taskId: id, contextId };
}

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
