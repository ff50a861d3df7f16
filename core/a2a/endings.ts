/** How the work on a task ends, unless somebody cancels it. */
import type { WaitingRun } from "../agents/agent.ts";
import { ServiceError } from "../lib/errors.ts";
import type { Ending } from "./task.ts";
import { INTERRUPTED } from "./task-keeper.ts";

/** Bound of what a task stores in order to continue with an answer. */
const MAX_WAITING_CHARACTERS = 16 * 1024 * 1024;

export const ENDED_BY_STOP: Ending = { state: "TASK_STATE_FAILED", reason: INTERRUPTED };

export function endingForWaiting(waiting: WaitingRun): Ending {
  if (JSON.stringify(waiting).length <= MAX_WAITING_CHARACTERS) return { state: "TASK_STATE_INPUT_REQUIRED", waiting };
  const reason = `what the agent has done so far is longer than ${MAX_WAITING_CHARACTERS} characters, and cannot wait for an approval`;
  return { state: "TASK_STATE_FAILED", reason };
}

/** An error that the caller could have avoided rejects the task; any other fails it. */
export function endingForError(error: unknown, requestId: string): Ending {
  if (!(error instanceof ServiceError))
    return { state: "TASK_STATE_FAILED", reason: `internal error (request id ${requestId})` };
  const refused = error.kind === "invalid_input" || error.kind === "not_found";
  return { state: refused ? "TASK_STATE_REJECTED" : "TASK_STATE_FAILED", reason: error.message };
}
