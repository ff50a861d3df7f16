/** The errors that clients get for workflows and executions. */
import { invalid, notFound, quoted, ServiceError, unavailable } from "../../lib/errors.ts";
import type { ExecutionStatus, StepPath } from "./entries.ts";

const describeStatus = (status: ExecutionStatus): string => (status === "error" ? "over: it failed" : status);

export const noWorkflow = (id: string) => notFound(`workflow ${quoted(id)} does not exist`);

export const noExecution = (id: string) => notFound(`execution ${quoted(id)} does not exist`);

export const severalUsers = (id: string) =>
  invalid(`several users have an execution ${quoted(id)}: say whose with userId`);

/** @param waiting the steps that can be resumed while the execution runs */
export const notSuspended = (id: string, status: ExecutionStatus, waiting: readonly StepPath[] = []) => {
  const hint = waiting.length === 0 ? "" : `; name in options.stepId which step you mean: ${waiting.join(", ")}`;
  return notFound(`execution ${quoted(id)} is not suspended: it is ${describeStatus(status)}${hint}`);
};

export const alreadyResumed = (path: StepPath) =>
  new ServiceError("conflict", `options.stepId: step ${JSON.stringify(path)} has been resumed already`);

export const alreadyEnded = (status: ExecutionStatus) => invalid(`the execution is already ${describeStatus(status)}`);

export const executionIdTaken = (id: string) =>
  new ServiceError("conflict", `options.executionId: ${quoted(id)} is taken`);

/** The execution settled, but was resumed before the request to suspend it was answered. */
export const resumedMeanwhile = (id: string) =>
  unavailable("the execution has been resumed meanwhile: suspend it again", 1, { executionId: id });

/** The execution is in the store, and continues after a restart or in another process. */
export const stillRunning = (id: string) =>
  unavailable("the execution has been interrupted: it goes on when the server is back", 1, { executionId: id });
