/** The logger of an execution: its lines name the execution. */
import type { Logger } from "pino";
import { boundLogger } from "../../observability/bound-logger.ts";
import { isRun, runIdOf } from "../journal/run-record.ts";
import type { JournalState } from "../journal/state.ts";
import type { ExecutionCaller } from "./environment.ts";
import type { ExecutionSpans } from "./spans.ts";

/** What of an execution its lines name. */
export interface LoggedExecution {
  readonly caller: Pick<ExecutionCaller, "logger">;
  readonly state: JournalState;
  readonly spans: ExecutionSpans | null;
}

/** The request's logger with the ids of the execution. Create it only when there is something to log. */
export function executionLogger({ caller, state, spans }: LoggedExecution): Logger {
  const { workflowId, id: executionId, conversationId, userId } = state.start;
  return boundLogger(caller.logger, {
    workflowId,
    executionId,
    conversationId,
    userId,
    traceId: spans?.root.traceId,
  });
}

/** Logs the error with which an execution has ended, unless the run of an agent has logged it. */
export function logFailure(execution: LoggedExecution, isWorkedOn: boolean): void {
  const { status, error, start } = execution.state;
  if (status !== "error" || error === null) return;
  const { stepId, message } = error;
  if (isRun(start.workflowId)) {
    const about = { agentId: start.workflowName, conversationId: start.conversationId, userId: start.userId };
    const runId = runIdOf(start);
    if (!isWorkedOn) boundLogger(execution.caller.logger, about).warn({ runId }, `the run failed: ${message}`);
    return;
  }
  executionLogger(execution).warn({ stepId }, `the execution failed at step ${stepId}: ${message}`);
}
