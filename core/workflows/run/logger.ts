/** The logger of an execution: its lines name the execution. */
import type { Logger } from "pino";
import { boundLogger } from "../../observability/bound-logger.ts";
import type { Execution } from "./execution.ts";

/** The logger of the request on whose behalf it runs, with the ids of the execution. To be made only when there is something to log. */
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
