/** The outcome of an execution, as the reply to the request that started it. */
import { CommitConflict, ServiceError, unlessNotFound } from "../lib/errors.ts";
import { Serialized } from "../lib/serialized.ts";
import { openExecutionKey } from "../storage/keys.ts";
import { Watch } from "../storage/watch.ts";
import type { Outline } from "./definition/definition.ts";
import type { Engine } from "./engine.ts";
import { stillRunning } from "./journal/errors.ts";
import { type FoundExecution, readExecution } from "./journal/load.ts";
import { executionResultText } from "./journal/record.ts";
import type { JournalState } from "./journal/state.ts";
import type { ExecutionLookup } from "./list/lookup.ts";
import type { WorkflowCall } from "./workflows.ts";

/** Pause between two reads of an execution in another process when the store does not notify of its end. */
const POLL_INTERVAL_MS = 500;

/** `data` of the reply. @throws ServiceError `step_failed` when a step failed, `unavailable` when the execution has not settled */
export function outcomeOf(state: JournalState, outline: Outline): Serialized {
  const { error, start, status } = state;
  if (error !== null) {
    const message = error.stepId === "" ? error.message : `step ${JSON.stringify(error.stepId)}: ${error.message}`;
    throw new ServiceError("step_failed", message, { facts: { executionId: start.id } });
  }
  if (status === "running") throw stillRunning(start.id);
  return new Serialized(executionResultText(state, outline));
}

/**
 * The outcome of an execution that an earlier try of the same request may have started, once it has settled. Null when there is no
 * such execution.
 */
export async function earlierOutcome(
  engine: Engine,
  lookup: ExecutionLookup,
  { workflowId, id, userId }: { workflowId: string; id: string; userId: string | undefined },
  call: WorkflowCall,
): Promise<Serialized | null> {
  if (call.keyed?.isRepeated !== true) return null;
  call.cutShort = { executionId: id };
  for (;;) {
    const known = await unlessNotFound(lookup.find(workflowId, id, userId));
    if (known === undefined) return null;
    if (!("loaded" in known)) {
      await Promise.race([known.settled, known.commitFailure()]).catch((error: unknown) => {
        throw error instanceof CommitConflict ? stillRunning(id) : error;
      });
      return outcomeOf(known.state, known.definition.outline);
    }
    const { found, loaded } = known;
    if (found.openRow === null)
      return outcomeOf(loaded.state, await engine.definitions.outline(found.start.definition));
    if (!engine.environment.shared) throw stillRunning(id);
    await restsElsewhere(engine, found, call.signal);
  }
}

async function restsElsewhere(
  { store }: Engine,
  { start: { number, id } }: FoundExecution,
  signal: AbortSignal | undefined,
): Promise<void> {
  const watch = new Watch(store, openExecutionKey(number));
  try {
    while ((await readExecution(store, number, id))?.openRow != null) {
      await watch.wait(POLL_INTERVAL_MS, signal);
      signal?.throwIfAborted();
    }
  } finally {
    watch.end();
  }
}
