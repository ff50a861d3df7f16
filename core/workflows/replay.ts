/** What a replay takes over from its source: everything before the chosen step, as it was. */
import type { ReplayExecutionRequest } from "../../generated/types.ts";
import { invalid } from "../errors.ts";
import type { Outline, StepOutline } from "./definition.ts";
import { apply, begin, type Fold } from "./fold.ts";
import type { Entry, Kept, Replay, StepPath } from "./journal.ts";
import { stepNamed } from "./step-named.ts";

export interface ReplayPlan {
  readonly replay: Replay;
  readonly state: Record<string, unknown>;
}

/** @throws ServiceError `invalid_input` for a step that does not exist, or that the source never reached */
export function planReplay(
  source: Fold,
  entries: readonly Entry[],
  outline: Outline,
  body: ReplayExecutionRequest,
): ReplayPlan {
  const step = stepNamed(outline, body.stepId, "stepId");
  const recorded = source.steps.get(step.path);
  if (recorded === undefined) throw invalid(`stepId: the execution never reached ${JSON.stringify(step.path)}`);
  const replay: Replay = {
    executionId: source.start.id,
    stepId: step.path,
    kept: keptOf(source, outline, step),
    ...inputOf(source, step.path, body),
    ...resumeOf(recorded.resume, body),
  };
  return { replay, state: body.workflowStateOverride ?? stateBefore(source, entries, step.path) };
}

function inputOf({ start }: Fold, path: StepPath, { inputData }: ReplayExecutionRequest): Pick<Replay, "input"> {
  if (inputData !== undefined) return { input: { value: inputData } };
  // A replay of a replay, from the same step: the input that it was given there.
  const { replay } = start;
  return replay?.stepId === path && replay.input !== undefined ? { input: replay.input } : {};
}

function resumeOf(recorded: { data: unknown } | null, { resumeData }: ReplayExecutionRequest): Pick<Replay, "resume"> {
  if (resumeData !== undefined) return { resume: { data: resumeData } };
  return recorded === null ? {} : { resume: { data: recorded.data } };
}

/** Steps that are over before the chosen one in the order of the text, and the choices of those that hold it. */
function keptOf(source: Fold, outline: Outline, step: StepOutline): Kept[] {
  const kept: Kept[] = [];
  // A race is run anew when one of its branches is replayed: a winner on record would end it at once.
  const anew = step.parents.filter((path) => outline.get(path)?.type === "andRace");
  const folds = [...source.steps.values()]
    .map((fold) => ({ fold, outline: outline.get(fold.path) }))
    .filter((item): item is typeof item & { outline: StepOutline } => item.outline !== undefined)
    .sort((a, b) => a.outline.order - b.outline.order);
  for (const { fold, outline: place } of folds) {
    const { path } = place;
    if (step.parents.includes(path)) {
      if (fold.branch !== null) kept.push(["begin", path, fold.source, fold.branch]);
      const input = `${path}/`;
      if (source.values.has(input)) kept.push(["begin", path, fold.source, { input: source.values.get(input) }]);
      continue;
    }
    if (place.order >= step.order || anew.some((race) => place.parents.includes(race))) continue;
    const passed = fold.status === "failed" && place.type === "andTap";
    if (fold.status !== "done" && fold.status !== "skipped" && !passed) continue;
    const output = passed ? fold.source : fold.output;
    const known = output === "" || kept.some(([kind, other]) => kind === "done" && other === output);
    kept.push(known ? ["same", path, output] : ["done", path, source.values.get(output) ?? null]);
  }
  return kept;
}

/** Shared state when the step first began. */
function stateBefore(source: Fold, entries: readonly Entry[], path: StepPath): Record<string, unknown> {
  const fold = begin(source.start);
  for (const entry of entries) {
    if (entry[0] === "begin" && entry[1] === path) break;
    apply(fold, entry);
  }
  return fold.state;
}
