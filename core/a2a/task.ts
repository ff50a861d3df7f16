/** A task as it is stored, and as A2A 1.0 writes it in JSON. */
import type { PendingApproval } from "../agents/run/parts.ts";
import type { Caller, User } from "../identity/principal.ts";
import { storedTime } from "../lib/clock.ts";

/**
 * States of a task that this service uses. A task starts as `WORKING`. It may become `INPUT_REQUIRED` while a person is asked, and
 * `WORKING` again after the answer; every other state is final.
 */
export type TaskState =
  | "TASK_STATE_WORKING"
  | "TASK_STATE_INPUT_REQUIRED"
  | "TASK_STATE_COMPLETED"
  | "TASK_STATE_FAILED"
  | "TASK_STATE_CANCELED"
  | "TASK_STATE_REJECTED";

/** A part has exactly one of `text`, `raw` (base64), `url` and `data`. */
export interface Part {
  text?: string;
  raw?: string;
  url?: string;
  data?: unknown;
  mediaType?: string;
  filename?: string;
}

export interface Message {
  messageId: string;
  contextId: string;
  taskId: string;
  role: "ROLE_USER" | "ROLE_AGENT";
  parts: Part[];
}

export interface Artifact {
  artifactId: string;
  /** Of the tool that gave it. */
  name?: string;
  parts: Part[];
}

interface TaskStatus {
  state: TaskState;
  /** The reason, unless the task was completed; the question while input is required. */
  message?: Message;
  /** ISO 8601. */
  timestamp: string;
}

export interface Task {
  id: string;
  contextId: string;
  status: TaskStatus;
  artifacts: Artifact[];
  /** The first message, then questions and their answers. */
  history: Message[];
  /** `finishReason` and `usage`, for a completed task. */
  metadata?: Record<string, unknown>;
}

/** What a task asks. */
interface WaitingFor {
  readonly approvals: readonly PendingApproval[];
  /** Of a task that an older release has stored: the input of the run that goes on with the answers. */
  readonly input?: readonly object[];
}

/** How the run of a task is found. */
interface TaskRun {
  /** Empty for nobody. */
  readonly userId: string;
  /** Number of its last event of which the artifacts in the row tell: more than none in rows of older releases. */
  readonly seen: number;
  /** Number of its last event of which the task tells. The run has what they said. */
  readonly told?: number;
}

/** On whose behalf the agent of a task works. */
interface TaskOrigin {
  readonly user: User | null;
  readonly caller: Caller["kind"];
  /** `metadata` of the request. */
  readonly context?: Record<string, unknown>;
}

/** What the store has of a task. Times are milliseconds since 1970. */
export interface TaskRecord {
  readonly agent: string;
  /** Id of the user it belongs to; empty when it belongs to nobody. */
  readonly owner: string;
  readonly updatedAt: number;
  readonly task: Task;
  readonly origin?: TaskOrigin;
  /** Undefined in tasks of older releases, which ended with their process. */
  readonly run?: TaskRun;
  /** Key of the row that leads from the first message to the task, and the value of that row. */
  readonly message?: readonly [key: string, content: string];
  /** Set only while input is required. */
  readonly waiting?: WaitingFor;
}

/** How the work on a task ended. */
export interface Ending {
  readonly state: Exclude<TaskState, "TASK_STATE_WORKING">;
  /** The reason as text for people. */
  readonly reason?: string;
  readonly metadata?: Record<string, unknown>;
  /** What the task asks; it continues after the answer. */
  readonly approvals?: readonly PendingApproval[];
}

/** Messages of a task that are kept: the first, and the last of those after it. */
const MAX_HISTORY = 200;
/** Most characters of the messages after the first, each of which may be as long as a request. The last one is always kept. */
const MAX_HISTORY_CHARACTERS = 1024 * 1024;

export const isWorking = ({ status }: Task): boolean => status.state === "TASK_STATE_WORKING";
/** Whether the state is final. */
export const isOver = (task: Task): boolean => !isWorking(task) && task.status.state !== "TASK_STATE_INPUT_REQUIRED";

export function ended(record: TaskRecord, { state, reason, metadata, approvals }: Ending): TaskRecord {
  const { waiting: _, ...rest } = record;
  const parts =
    approvals !== undefined
      ? questionParts(approvals)
      : reason === undefined
        ? []
        : [{ text: reason, mediaType: TEXT }];
  // What is left of a question, once a part of it is answered, is another one.
  const name = approvals === undefined ? "end" : `question-${approvals[0]!.approvalId}-${approvals.length}`;
  const changed = withStatus(rest, state, parts, name);
  if (metadata !== undefined) changed.task.metadata = metadata;
  return approvals === undefined ? changed : { ...changed, waiting: { approvals } };
}

/** The task in progress again. */
export function resumed(record: TaskRecord): TaskRecord {
  const { waiting: _, ...rest } = record;
  return withStatus({ ...rest, task: withQuestion(record.task) }, "TASK_STATE_WORKING", []);
}

/** The task with its client's answer added to the history. */
export function withAnswer(record: TaskRecord, message: Message): TaskRecord {
  const task = withQuestion(record.task);
  const updatedAt = Math.max(storedTime(), record.updatedAt);
  return { ...record, updatedAt, task: { ...task, history: bounded([...task.history, message]) } };
}

function withStatus(record: TaskRecord, state: TaskState, parts: Part[], name = "") {
  const { id, contextId } = record.task;
  // The index is ordered by this time, so it must not decrease when the clock is set back.
  const updatedAt = Math.max(storedTime(), record.updatedAt);
  const status: TaskStatus = { state, timestamp: new Date(updatedAt).toISOString() };
  if (parts.length > 0) {
    status.message = { messageId: `${id}-${name}`, contextId, taskId: id, role: "ROLE_AGENT", parts };
  }
  return { ...record, updatedAt, task: { ...record.task, status } };
}

/** Moves the question to the history once it is answered. */
function withQuestion(task: Task): Task {
  const { status, history } = task;
  const { message } = status;
  if (message === undefined || history.some(({ messageId }) => messageId === message.messageId)) return task;
  return { ...task, history: bounded([...history, message]) };
}

function bounded([first, ...later]: Message[]): Message[] {
  let size = 0;
  const dropped = later.findLastIndex((message, index) => {
    size += JSON.stringify(message).length;
    const place = later.length - index;
    return place > 1 && (place >= MAX_HISTORY || size > MAX_HISTORY_CHARACTERS);
  });
  return [first!, ...later.slice(dropped + 1)];
}

const TEXT = "text/plain";

/** The question in two forms: for people, and for programs. */
function questionParts(approvals: readonly PendingApproval[]): Part[] {
  const names = approvals.map(({ toolName }) => JSON.stringify(toolName)).join(", ");
  const how =
    approvals.length === 1
      ? 'Answer "yes" or "no"'
      : "Several calls wait. Answer each with a data part {approvalId, approved}";
  const text = `The agent asks for approval to call ${names}. ${how}.`;
  const data = approvals.map(({ approvalId, toolName, input }) => ({ approvalId, tool: toolName, input }));
  return [{ text, mediaType: TEXT }, ...data.map((each) => ({ data: each, mediaType: "application/json" }))];
}
