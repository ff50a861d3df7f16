/** Resumes a step that waits for a person's approval, once that was given or denied. The step itself then looks up the answer. */
import type { Delivery } from "../approvals/upkeep.ts";
import { EVERYTHING } from "../identity/principal.ts";
import { ServiceError } from "../lib/errors.ts";
import type { Engine } from "./engine.ts";
import { liveKey } from "./journal/ids.ts";
import { isRun } from "./journal/run-record.ts";
import { timeAfter } from "./journal/state.ts";
import { isSuperseded } from "./journal/superseded.ts";
import { ExecutionLookup } from "./list/lookup.ts";

/** Identifies the step that waits, and its execution. */
export interface AwaitingStep {
  readonly workflowId?: string | undefined;
  readonly executionId?: string | undefined;
  readonly stepId?: string | undefined;
  /** Id of the user that the execution belongs to; empty when it belongs to none. */
  readonly owner: string;
}

export async function resumeAwaitingStep(engine: Engine, step: AwaitingStep): Promise<Delivery> {
  const { workflowId = "", executionId = "", stepId = "", owner } = step;
  try {
    const declared = (id: string) => isRun(id) || engine.declared(id);
    const execution = await new ExecutionLookup(engine, EVERYTHING, declared).find(workflowId, executionId, owner);
    // The execution has not suspended yet, or another branch of it still runs.
    if (!("loaded" in execution) || execution.found.openRow !== null) return "later";
    const { found, loaded } = execution;
    const { state } = loaded;
    const definition = await engine.definitions.pinned(found.start.definition);
    const waits = state.steps.get(stepId)?.status === "waiting" && !isSuperseded(stepId, state, definition.outline);
    if (state.status !== "suspended" || !waits) return "gone";
    if (engine.live.has(liveKey(found.start))) return "later";
    engine.capacity.requireFree(found.start.user);
    const caller = { requestId: "", logger: engine.logger, trace: engine.trace };
    const resumed = engine.restore(state, definition, caller, { loaded, openRow: null, recordRow: found.recordRow });
    engine.beginTrace(resumed, "resume");
    // What expressions see as `resume` does not change, and so the input of the call does not either.
    const at = timeAfter(state);
    resumed.append(state.resume === null ? ["resume", stepId, at] : ["resume", stepId, at, state.resume]);
    engine.run(resumed);
    return "later";
  } catch (error) {
    if (error instanceof ServiceError && error.kind === "not_found") return "gone";
    if (error instanceof ServiceError && (error.kind === "unavailable" || error.kind === "rate_limited"))
      return "later";
    throw error;
  }
}
