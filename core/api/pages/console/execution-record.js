/** The record of one execution, which only the list has: it is asked for the executions that began at the same time. */

/** @import { ExecutionState, WorkflowExecution } from "../../../../generated/types.ts" */
/** @import { Api } from "./api.js" */

/**
 * @param {Api} api
 * @param {ExecutionState} state
 * @param {AbortSignal} signal
 * @returns {Promise<WorkflowExecution | undefined>}
 */
export async function recordOf(api, { workflowId, executionId, userId, startAt }, signal) {
  const query = new URLSearchParams({ workflowId, from: startAt, to: startAt });
  /** @type {WorkflowExecution[]} */
  const records = await api.get(`workflows/executions?${query}`, { signal });
  return records.find((record) => record.id === executionId && record.userId === userId);
}
