/** Executions that are runs of agents: their definition is not in the manifest, and their record differs. */
import type { PendingApproval } from "../../../generated/types.ts";
import { isoTime } from "../../lib/iso-time.ts";
import type { ExecutionStart, ExecutionStatus } from "./entries.ts";
import { entryJson } from "./outcome-text.ts";
import type { JournalState } from "./state.ts";

/** Marks workflow ids of runs: no id of a workflow has a colon. */
const PREFIX = "agent:";
/** Prefix of the ids of runs, so that they differ from ids of executions: no id that a client chooses has a slash. */
const ID_PREFIX = "run/";

export const runDefinitionId = (agentId: string): string => PREFIX + agentId;
export const isRun = (workflowId: string): boolean => workflowId.startsWith(PREFIX);
/** Whether it is a task of A2A. */
export const isTask = ({ workflowId, input }: Pick<ExecutionStart, "workflowId" | "input">): boolean =>
  isRun(workflowId) && (input as { isTask?: true }).isTask === true;
export const runExecutionId = (runId: string): string => ID_PREFIX + runId;
export const runIdOf = ({ id }: Pick<ExecutionStart, "id">): string => id.slice(ID_PREFIX.length);

/** The status of a run by that of its execution. */
export const RUN_STATUS: Readonly<Record<ExecutionStatus, string>> = {
  running: "running",
  suspended: "waiting",
  completed: "completed",
  error: "error",
  cancelled: "cancelled",
};

/** The output of the step of a run. */
export interface RunOutput {
  readonly output: unknown;
  readonly usage: unknown;
}

/** What a run waits for, as the data of its suspension. */
export interface RunSuspension {
  readonly approvals: readonly PendingApproval[];
}

const approvalsText = ({ suspension }: JournalState): string =>
  suspension === null ? "[]" : entryJson((suspension.data as RunSuspension).approvals);

/** The record of a run as JSON, as its list returns it. */
export function runRecordText(state: JournalState): string {
  const { start, status, endedAt, output, error } = state;
  let text = `{"runId":${JSON.stringify(runIdOf(start))},"agentId":${JSON.stringify(start.workflowName)},"status":"${RUN_STATUS[status]}"`;
  if (start.userId !== undefined) text += `,"userId":${JSON.stringify(start.userId)}`;
  if (start.conversationId !== undefined) text += `,"conversationId":${JSON.stringify(start.conversationId)}`;
  text += `,"startTime":"${isoTime(start.at)}"`;
  if (endedAt !== null) text += `,"endTime":"${isoTime(endedAt)}"`;
  if (status === "completed") {
    const { usage, output: given } = output as RunOutput;
    text += `,"usage":${entryJson(usage)},"output":${entryJson(given)}`;
  }
  if (error !== null) text += `,"error":${JSON.stringify(error.message)}`;
  return `${text},"approvals":${approvalsText(state)}}`;
}
