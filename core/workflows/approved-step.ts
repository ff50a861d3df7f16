/** Tells a step that waits for a person's approval of the answer: it is resumed, and looks the answer up itself. */
import type { Delivery } from "../approvals/approvals.ts";
import { EVERYTHING } from "../identity/principal.ts";
import { ServiceError, unlessNotFound } from "../lib/errors.ts";
import { cancelResting } from "./cancel-resting.ts";
import type { Engine } from "./engine.ts";
import { liveKey } from "./journal/entries.ts";
import { isRun } from "./journal/record.ts";
import { isSuperseded, timeAfter } from "./journal/state.ts";
import { ExecutionLookup } from "./list/lookup.ts";

/** Identifies the step that waits, and its execution. */
interface AwaitingStep {
  readonly workflowId?: string | undefined;
  readonly executionId?: string | undefined;
  readonly stepId?: string | undefined;
  /** Id of the user that the execution belongs to; empty when it belongs to none. */
  readonly owner: string;
  readonly runId?: string | undefined;
  readonly taskId?: string | undefined;
  readonly agentId?: string | undefined;
}

/** With what became of its question. */
interface AnsweredStep extends AwaitingStep {
  readonly status: string;
  readonly reason?: string | undefined;
}

const find = (engine: Engine, step: AwaitingStep, declared: (id: string) => unknown) =>
  new ExecutionLookup(engine, EVERYTHING, declared).find(step.workflowId ?? "", step.executionId ?? "", step.owner);

/** A task of A2A that an older release has stored is no execution. */
const isOldTask = ({ taskId, runId }: AwaitingStep): boolean => taskId !== undefined && runId === undefined;

/** @param isStored whether only an end counts that is in the store: one that is not there yet, or runs here, may go on elsewhere */
export async function hasStepEnded(engine: Engine, step: AwaitingStep, isStored = false): Promise<boolean> {
  if (isOldTask(step)) return false;
  const execution = await unlessNotFound(find(engine, step, () => true));
  if (execution === undefined) return !isStored;
  if ("loaded" in execution) return execution.loaded.state.endedAt !== null;
  return !isStored && execution.state.endedAt !== null;
}

/** Why a run does not go on when its question was withdrawn. */
const ENDS_RUN: ReadonlySet<string | undefined> = new Set(["superseded", "conversation_deleted"]);

export async function tellAwaitingStep(engine: Engine, step: AnsweredStep): Promise<Delivery> {
  const { stepId = "", runId, taskId, status, reason } = step;
  if (isOldTask(step)) {
    if (engine.onTaskRest === null) return "later";
    await engine.onTaskRest(step.agentId ?? "", taskId!);
    return "gone";
  }
  try {
    const execution = await find(engine, step, (id) => isRun(id) || engine.declared(id));
    // The execution has not suspended yet, or another branch of it still runs.
    if (!("loaded" in execution) || execution.found.openRow !== null) return "later";
    const { found, loaded } = execution;
    const { state } = loaded;
    const definition = await engine.definitions.pinned(found.start.definition);
    const waits = state.steps.get(stepId)?.status === "waiting" && !isSuperseded(stepId, state, definition.outline);
    if (state.status !== "suspended" || !waits) return "gone";
    if (engine.live.has(liveKey(found.start))) return "later";
    // The client of a task that is not answered is told so.
    const isUnheard = taskId !== undefined && status === "expired";
    if (isUnheard || (runId !== undefined && status === "withdrawn" && ENDS_RUN.has(reason))) {
      await cancelResting(engine, execution, isUnheard ? status : reason!);
      return "gone";
    }
    engine.capacity.requireFree(found.start.user);
    const caller = { requestId: "", logger: engine.logger, trace: engine.trace };
    const resumed = engine.restore(execution, definition, caller);
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
