/** What cannot be done with an execution, as the API says it. */
import { invalid, notFound, ServiceError } from "../../lib/errors.ts";
import type { ExecutionStatus } from "./entries.ts";

const named = (id: string) => JSON.stringify(id.slice(0, 128));

const said = (status: ExecutionStatus): string => (status === "error" ? "over: it failed" : status);

export const noWorkflow = (id: string) => notFound(`workflow ${named(id)} does not exist`);

export const noExecution = (id: string) => notFound(`execution ${named(id)} does not exist`);

export const severalUsers = (id: string) =>
  invalid(`several users have an execution ${named(id)}: say whose with userId`);

export const notSuspended = (id: string, status: ExecutionStatus) =>
  notFound(`execution ${named(id)} is not suspended: it is ${said(status)}`);

export const alreadyEnded = (status: ExecutionStatus) => invalid(`the execution is already ${said(status)}`);

export const executionIdTaken = (id: string) =>
  new ServiceError("conflict", `options.executionId: ${named(id)} is taken`);

/** A suspend that came between two runs of it. */
export const resumedMeanwhile = (id: string) =>
  new ServiceError("unavailable", "the execution has been resumed meanwhile: suspend it again", {
    headers: { "retry-after": "1", "x-execution-id": id },
  });

/** It is on record, and goes on after a restart, or in another process. */
export const stillRunning = (id: string) =>
  new ServiceError("unavailable", "the execution has been interrupted: it goes on when the server is back", {
    headers: { "retry-after": "1", "x-execution-id": id },
  });
