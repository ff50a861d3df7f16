/** Converts errors of the service to errors of A2A, which tell clients no more than the replies of the API do. */
import { A2AError, RequestMalformedError, TaskNotFoundError, UnsupportedOperationError } from "@a2a-js/sdk/errors";
import type { RunCall } from "../agents/run/caller.ts";
import { quoted, ServiceError } from "../lib/errors.ts";
import { logError } from "../observability/failures.ts";

export function a2aError(error: unknown, { logger, requestId }: Pick<RunCall, "logger" | "requestId">): A2AError {
  if (error instanceof A2AError) return error;
  logError(logger, error, { operation: "a2a.call" });
  if (!(error instanceof ServiceError)) return new A2AError(`internal error (request id ${requestId})`);
  const Known = ERRORS[error.kind];
  return Known === undefined ? new A2AError(error.message) : new Known(error.message);
}

/** Any other kind is an internal error. */
const ERRORS: Partial<Record<ServiceError["kind"], new (message: string) => A2AError>> = {
  invalid_input: RequestMalformedError,
  // What only another may do, such as the console, and what is too late.
  forbidden: UnsupportedOperationError,
  conflict: UnsupportedOperationError,
};

export const taskNotFound = (id: string) => new TaskNotFoundError(`task ${quoted(id)} does not exist`);
