/** Converts errors of the service to errors of A2A, which tell clients no more than the replies of the API do. */
import { A2AError, RequestMalformedError, TaskNotFoundError } from "@a2a-js/sdk/errors";
import type { RunCall } from "../agents/agent.ts";
import { messageOf, ServiceError } from "../lib/errors.ts";

export function a2aError(error: unknown, { logger, requestId }: Pick<RunCall, "logger" | "requestId">): A2AError {
  if (error instanceof A2AError) return error;
  if (!(error instanceof ServiceError)) {
    logger.error({ err: error, operation: "a2a.call" }, messageOf(error));
    return new A2AError(`internal error (request id ${requestId})`);
  }
  if (error.cause !== undefined)
    logger.warn({ ...error.logged, err: error.cause, operation: "a2a.call" }, error.message);
  return error.kind === "invalid_input" ? new RequestMalformedError(error.message) : new A2AError(error.message);
}

export const taskNotFound = (id: string) =>
  new TaskNotFoundError(`task ${JSON.stringify(id.slice(0, 128))} does not exist`);
