/** Steps whose outcome no longer matters, because a container step around them has ended. */
import type { Outline } from "../definition/definition.ts";
import type { StepPath } from "./entries.ts";
import type { JournalState, StepState } from "./state.ts";

/** Whether a container step around a step has ended, so that the step will not continue even when the execution is resumed. */
export function isSuperseded(path: StepPath, { steps }: Pick<JournalState, "steps">, outline: Outline): boolean {
  return (outline.get(path)?.parents ?? []).some((parent) => hasEnded(steps.get(parent)));
}

/** A failed step that runs again, after a retry or a resume, has no `endedAt`. */
const hasEnded = (step: StepState | undefined): boolean =>
  step !== undefined &&
  (step.status === "done" || step.status === "skipped" || (step.status === "failed" && step.endedAt !== null));

/** The steps that wait to be resumed, in the order of the definition, without those of branches that lost. */
export const waitingSteps = (state: Pick<JournalState, "steps">, outline: Outline): StepState[] =>
  [...state.steps.values()]
    .filter(({ status, path }) => status === "waiting" && !isSuperseded(path, state, outline))
    .sort((a, b) => (outline.get(a.path)?.order ?? 0) - (outline.get(b.path)?.order ?? 0));
