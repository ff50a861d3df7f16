/** Requests with an `Idempotency-Key`: an earlier try may have done what they ask for before its process died. */
import type { ExecuteWorkflowRequest } from "../../generated/types.ts";
import type { KeyedWork } from "../http/idempotency.ts";
import { ServiceError, unlessNotFound } from "../lib/errors.ts";
import type { Engine } from "./engine.ts";
import { loadExecution, readExecution } from "./journal/load.ts";
import type { ExecutionLookup, StoredExecution } from "./list/lookup.ts";
import type { Execution } from "./run/execution.ts";

interface KeyedBegin {
  readonly workflowId: string;
  readonly body: ExecuteWorkflowRequest;
  readonly keyed: KeyedWork;
}

/** Starts an execution with the id that belongs to the key, or finds the one that an earlier request with the key has started. */
export async function beginOnce<T>(
  lookup: ExecutionLookup,
  { workflowId, body, keyed }: KeyedBegin,
  begin: (body: ExecuteWorkflowRequest) => Promise<T>,
  find: (id: string, userId: string | undefined) => Promise<T>,
): Promise<T> {
  const { executionId = keyed.runId, userId } = body.options ?? {};
  if (keyed.isRepeated && (await unlessNotFound(lookup.find(workflowId, executionId, userId))) !== undefined)
    return find(executionId, userId);
  try {
    return await begin({ ...body, options: { ...body.options, executionId } });
  } catch (error) {
    // Of two simultaneous requests with one key, the other was faster.
    const isTaken = error instanceof ServiceError && error.kind === "conflict";
    if (!isTaken || body.options?.executionId !== undefined) throw error;
    return find(executionId, userId);
  }
}

/** Whether the journal has a resume with this token, which `resumeBeside` records. */
export async function wasResumed(
  { store }: Engine,
  execution: Execution | StoredExecution,
  token: string,
): Promise<boolean> {
  const { start } = "loaded" in execution ? execution.loaded.state : execution.state;
  const found = await readExecution(store, start.number, start.id);
  const loaded = found === null ? null : await loadExecution(store, found);
  return loaded?.entries.some(([kind, , , given]) => kind === "answer" && given === token) === true;
}
