/** Steps in branches that do not matter any more. */
import type { Outline } from "../definition/definition.ts";
import type { StepPath } from "./entries.ts";
import type { JournalState, StepState } from "./state.ts";

/** Whether something that holds a step is over without it: the step is not about to go on, whatever its execution does. */
export function isSuperseded(path: StepPath, { steps }: Pick<JournalState, "steps">, outline: Outline): boolean {
  return (outline.get(path)?.parents ?? []).some((parent) => isOver(steps.get(parent)));
}

/** One that begins again, after a failed try or a resume, has no end. */
const isOver = (step: StepState | undefined): boolean =>
  step !== undefined &&
  (step.status === "done" || step.status === "skipped" || (step.status === "failed" && step.endedAt !== null));
