/** The logger of an execution: its lines name the execution. */
import type { Logger } from "pino";
import { boundLogger } from "../../observability/bound-logger.ts";
import type { Execution } from "./execution.ts";

/** The request's logger with the ids of the execution. Create it only when there is something to log. */
export function executionLogger({ caller, state, spans }: Pick<Execution, "caller" | "spans" | "state">): Logger {
  const { workflowId, id: executionId, conversationId, userId } = state.start;
  return boundLogger(caller.logger, {
    workflowId,
    executionId,
    conversationId,
    userId,
    traceId: spans?.root.traceId,
  });
}
