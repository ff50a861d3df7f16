/** Starts new executions for a request. */

import type { ExecuteWorkflowRequest, ExecutionStarted } from "../../generated/types.ts";
import { actingUser } from "../identity/acting-user.ts";
import type { Principal } from "../identity/principal.ts";
import { seesEverything } from "../identity/principal.ts";
import { storedTime } from "../lib/clock.ts";
import { CommitConflict, invalid } from "../lib/errors.ts";
import { isoTime } from "../lib/iso-time.ts";
import { jsonBytes } from "../lib/size.ts";
import type { Engine } from "./engine.ts";
import type { ExecutionStart } from "./journal/entries.ts";
import { executionIdTaken, stillRunning } from "./journal/errors.ts";
import { executionOwner } from "./journal/ids.ts";
import { findExecution, startsWithId } from "./journal/load.ts";
import type { JournalState } from "./journal/state.ts";
import type { Execution } from "./run/execution.ts";
import { unlessNumberTaken } from "./run/execution-commits.ts";
import type { WorkflowCall } from "./workflows.ts";

/**
 * @param number internal number of the new execution
 * @throws ServiceError as documented at `WorkflowAccess`
 */
export async function beginExecution(
  engine: Engine,
  principal: Principal,
  number: number,
  workflowId: string,
  body: ExecuteWorkflowRequest,
  call: WorkflowCall,
): Promise<Execution> {
  const definition = engine.declared(workflowId);
  engine.capacity.requireFree(call.user);
  const { input = null, options = {} } = body;
  const problem = definition.inputCheck?.(input, "input") ?? null;
  if (problem !== null) throw invalid(problem);
  const userId = actingUser(principal, options.userId) || undefined;
  const room = engine.store.requireRoom?.(userId, () => jsonBytes(input));
  if (room !== undefined) await room;
  const { executionId, conversationId, context, workflowState, metadata } = options;
  if (executionId === "." || executionId === "..")
    throw invalid('options.executionId must not be "." or "..", which cannot stand in a path');
  if (executionId !== undefined) {
    // The first commit ensures that the id is free. This check keeps an execution with a taken id from running its first steps.
    // Nothing may be awaited between the last check and the start.
    const exists = isLive(engine, executionId, userId) || (await isStored(engine, executionId, userId));
    if (exists || isLive(engine, executionId, userId)) throw executionIdTaken(executionId);
  }
  const start: ExecutionStart = {
    id: executionId ?? engine.newId(number),
    number,
    workflowId,
    workflowName: definition.name,
    definition: definition.hash,
    at: storedTime(),
    ownId: executionId !== undefined && engine.spaces.isolated ? true : undefined,
    input,
    context: context ?? {},
    state: workflowState ?? {},
    userId,
    conversationId,
    metadata,
    user: call.user ?? undefined,
    caller: seesEverything(call.caller) ? call.caller.kind : undefined,
  };
  return engine.begin(start, definition, call);
}

/** Makes the error for an execution whose first commit conflicted with one of another process. */
export type Lost = (conflict: CommitConflict) => Error;

export const lostBegin =
  ({ state: { start } }: Execution): Lost =>
  (conflict) =>
    unlessNumberTaken(conflict, start.number, executionIdTaken(start.id));

/** @param lost the error when the execution did not start here; one that another process has recovered is still running */
export async function unlessLost(execution: Execution, waiting: Promise<void>, lost: Lost): Promise<void> {
  try {
    await waiting;
  } catch (error) {
    if (!(error instanceof CommitConflict)) throw error;
    throw execution.isRecorded ? stillRunning(execution.state.start.id) : lost(error);
  }
}

/** Waits until a new execution is in the store. */
export async function untilRecorded(execution: Execution): Promise<Execution> {
  while (!execution.isRecorded) {
    await unlessLost(execution, Promise.race([execution.progress(), execution.settled]), lostBegin(execution));
  }
  return execution;
}

/** For a request that does not wait for its execution. */
export function acknowledge({ start }: JournalState): ExecutionStarted {
  const { id: executionId, workflowId, at } = start;
  return { executionId, workflowId, status: "running", startAt: isoTime(at) };
}

/** Whether an execution with this id runs here: with isolation one of the user, without it one of anybody. */
export function isLive(engine: Engine, id: string, userId = ""): boolean {
  const execution = engine.liveExecution(id, userId);
  return execution !== undefined && (!engine.spaces.isolated || executionOwner(execution.state.start) === userId);
}

/** Whether an execution with this id is in the store, with the same scope as `isLive`. */
export async function isStored({ store, spaces }: Engine, id: string, userId = ""): Promise<boolean> {
  const { isolated, owned } = spaces;
  if (owned && !isolated) return (await startsWithId(store, spaces, id)).length > 0;
  const matches = (start: ExecutionStart) => !isolated || executionOwner(start) === userId;
  return (await findExecution(store, id, { spaces, owner: userId, matches })) !== null;
}
