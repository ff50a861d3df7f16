/** Index rows, by which lists find settled executions. They are written when an execution settles, and removed when it is resumed. */
import { conversationRuns, executionEntry, executionIndex, openExecutionKey } from "../../storage/keys.ts";
import type { ExecutionStart, ExecutionStatus } from "./entries.ts";
import { isRun, runIdOf } from "./record.ts";

/** The statuses of settled executions: they have ended or are suspended. */
export const RESTING: readonly ExecutionStatus[] = ["suspended", "completed", "error", "cancelled"];
/** The statuses of executions that have ended and cannot be resumed. */
export const ENDED: readonly ExecutionStatus[] = ["completed", "error", "cancelled"];

/** The keys of its index rows: two, and two more if it belongs to a user. Runs of agents are not in the list of all workflows. */
export function indexKeys(
  { at, number, workflowId, userId }: Pick<ExecutionStart, "at" | "number" | "workflowId" | "userId">,
  status: ExecutionStatus,
): string[] {
  const entry = executionEntry(at, number);
  if (isRun(workflowId)) {
    const key = executionIndex(status, workflowId) + entry;
    return userId === undefined ? [key] : [key, executionIndex(status, workflowId, userId) + entry];
  }
  const keys = [executionIndex(status) + entry, executionIndex(status, workflowId) + entry];
  if (userId !== undefined) {
    keys.push(executionIndex(status, undefined, userId) + entry, executionIndex(status, workflowId, userId) + entry);
  }
  return keys;
}

/** The rows of a running execution: its open row with this value, and for the run of a chat the row that leads to it. */
export function openRows(start: ExecutionStart, value: string): [string, string][] {
  const open: [string, string] = [openExecutionKey(start.number), value];
  const key = conversationRunKey(start);
  return key === null ? [open] : [open, [key, JSON.stringify(runIdOf(start))]];
}

export const openRowKeys = (start: ExecutionStart): string[] => openRows(start, "").map(([key]) => key);

function conversationRunKey(start: ExecutionStart): string | null {
  const { isResumable, workflowName, userId = "", conversationId = "", at, number } = start;
  if (isResumable !== true) return null;
  return conversationRuns(workflowName, userId, conversationId) + executionEntry(at, number);
}
