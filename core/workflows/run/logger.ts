/** The logger of an execution: its lines say which execution they are about. */
import type { Logger } from "pino";
import { boundLogger } from "../../observability/bound-logger.ts";
import type { Execution } from "./execution.ts";

/** That of the request on whose behalf it runs at present, with the names of the execution. Ask when there is something to log. */
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
