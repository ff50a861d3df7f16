/** Cancels a suspended execution: nothing of it runs, so only its record changes. */
import { unlessConflict } from "../storage/store.ts";
import type { WorkflowDefinition } from "./definition/definition.ts";
import type { Engine } from "./engine.ts";
import { isTask, runIdOf } from "./journal/record.ts";
import { type JournalState, timeAfter } from "./journal/state.ts";
import type { StoredExecution } from "./list/lookup.ts";

/** @returns null when the execution was resumed meanwhile */
export async function cancelResting(
  engine: Engine,
  stored: StoredExecution,
  reason: string,
): Promise<JournalState | null> {
  // None of its steps runs, so the outline is enough even when plugins of the definition are missing.
  const definition = { outline: await engine.definitions.outline(stored.found.start.definition) } as WorkflowDefinition;
  const caller = { requestId: "", logger: engine.logger };
  const execution = engine.restore(stored, definition, caller);
  execution.append(["cancel", "", timeAfter(execution.state), reason]);
  if (!(await unlessConflict(execution.writeRecord()))) return null;
  await engine.onEnd?.(execution.state);
  const { start } = stored.found;
  if (isTask(start)) engine.onTaskRest?.(start.workflowName, runIdOf(start));
  return execution.state;
}
