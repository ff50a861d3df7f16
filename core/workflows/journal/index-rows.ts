/** The rows by which executions that rest are listed; they come and go in the commits that let an execution rest and go on. */
import { executionEntry, executionIndex } from "../../storage/keys.ts";
import type { ExecutionStart, ExecutionStatus } from "./entries.ts";

/** The statuses of executions that rest. */
export const RESTING: readonly ExecutionStatus[] = ["suspended", "completed", "error", "cancelled"];
/** The statuses of executions that are over for good. */
export const ENDED: readonly ExecutionStatus[] = ["completed", "error", "cancelled"];

/** The keys of one resting status: two, and two more for an execution that belongs to a user. */
export function indexKeys(
  { at, number, workflowId, userId }: Pick<ExecutionStart, "at" | "number" | "workflowId" | "userId">,
  status: ExecutionStatus,
): string[] {
  const entry = executionEntry(at, number);
  const keys = [executionIndex(status) + entry, executionIndex(status, workflowId) + entry];
  if (userId !== undefined) {
    keys.push(executionIndex(status, undefined, userId) + entry, executionIndex(status, workflowId, userId) + entry);
  }
  return keys;
}
