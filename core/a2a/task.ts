/** A task as it is stored, and as A2A 1.0 writes it in JSON. */

/** States of a task that this service uses. A task begins as `WORKING`; every other state is final. */
export type TaskState =
  | "TASK_STATE_WORKING"
  | "TASK_STATE_COMPLETED"
  | "TASK_STATE_FAILED"
  | "TASK_STATE_CANCELED"
  | "TASK_STATE_REJECTED";

/** One of `text`, `raw` (base64), `url` and `data`. */
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
  parts: Part[];
}

interface TaskStatus {
  state: TaskState;
  /** The reason, unless the task was completed. */
  message?: Message;
  /** ISO 8601. */
  timestamp: string;
}

export interface Task {
  id: string;
  contextId: string;
  status: TaskStatus;
  artifacts: Artifact[];
  /** The message that the task began with. */
  history: Message[];
  /** Of a task that is completed: `finishReason` and `usage`. */
  metadata?: Record<string, unknown>;
}

/** What the store has of a task. Times are milliseconds since 1970. */
export interface TaskRecord {
  readonly agent: string;
  /** Id of the user it belongs to; empty when it belongs to nobody. */
  readonly owner: string;
  readonly createdAt: number;
  readonly updatedAt: number;
  readonly task: Task;
}

/** How a task ended. */
export interface Ending {
  readonly state: Exclude<TaskState, "TASK_STATE_WORKING">;
  /** For people. */
  readonly reason?: string;
  readonly metadata?: Record<string, unknown>;
}

export const isOver = ({ status }: Task): boolean => status.state !== "TASK_STATE_WORKING";

/** @param now milliseconds since 1970 */
export function ended(record: TaskRecord, { state, reason, metadata }: Ending, now: number): TaskRecord {
  const { id, contextId } = record.task;
  // The index is ordered by this time, which must not go back when the clock does.
  const updatedAt = Math.max(now, record.updatedAt);
  const status: TaskStatus = { state, timestamp: new Date(updatedAt).toISOString() };
  if (reason !== undefined) {
    const parts = [{ text: reason, mediaType: "text/plain" }];
    status.message = { messageId: `${id}-end`, contextId, taskId: id, role: "ROLE_AGENT", parts };
  }
  const task = { ...record.task, status };
  if (metadata !== undefined) task.metadata = metadata;
  return { ...record, updatedAt, task };
}
