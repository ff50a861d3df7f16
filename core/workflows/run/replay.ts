/** What a replay takes over from its source: everything before the chosen step, as it was. */
import type { ReplayExecutionRequest } from "../../../generated/types.ts";
import { invalid } from "../../lib/errors.ts";
import type { Outline, StepOutline } from "../definition/definition.ts";
import { findStepByName } from "../definition/find-step.ts";
import type { JournalEntry, Replay, ReplayedEntry, StepPath } from "../journal/entries.ts";
import { type JournalState, stateFromJournal } from "../journal/state.ts";

interface ReplayPlan {
  readonly replay: Replay;
  readonly state: Record<string, unknown>;
}

/** @throws ServiceError `invalid_input` for a step that does not exist, or that the source never reached */
export function planReplay(
  source: JournalState,
  entries: readonly JournalEntry[],
  outline: Outline,
  body: ReplayExecutionRequest,
): ReplayPlan {
  const step = findStepByName(outline, body.stepId, "stepId");
  const recorded = source.steps.get(step.path);
  if (recorded === undefined) throw invalid(`stepId: the execution never reached ${JSON.stringify(step.path)}`);
  const kept = keptOf(source, outline, step);
  const resume = resumeOf(resumeOnRecord(source, entries, step.path) ?? recorded.resume, body);
  const resumed = resumedBefore(source, entries, step.path);
  const replay: Replay = {
    executionId: source.start.id,
    stepId: step.path,
    kept,
    ...inputOf(source, step.path, body),
    ...resume,
    ...(resumed !== null && { resumed }),
  };
  const waited = resume.resume === undefined ? null : step.path;
  return { replay, state: body.workflowStateOverride ?? stateOf(source, entries, kept, waited) };
}

function inputOf(
  { start }: JournalState,
  path: StepPath,
  { inputData }: ReplayExecutionRequest,
): Pick<Replay, "input"> {
  if (inputData !== undefined) return { input: { value: inputData } };
  // A replay of a replay, from the same step: the input that it was given there.
  const { replay } = start;
  return replay?.stepId === path && replay.input !== undefined ? { input: replay.input } : {};
}

function resumeOf(recorded: Replay["resume"] | null, { resumeData }: ReplayExecutionRequest): Pick<Replay, "resume"> {
  if (resumeData !== undefined) return { resume: { data: resumeData, waited: true } };
  return recorded === null ? {} : { resume: recorded };
}

/** What the step was last given that it had asked for, whatever came of it then. */
function resumeOnRecord(
  { start: { replay } }: JournalState,
  entries: readonly JournalEntry[],
  path: StepPath,
): NonNullable<Replay["resume"]> | null {
  let waited = false;
  // A replay of a replay, from the same step: it began as after it had waited.
  let resume = replay?.stepId === path ? (replay.resume ?? null) : null;
  for (const [kind, other, , data] of entries) {
    if (other !== path) continue;
    if (kind === "wait") [waited, resume] = [true, null];
    else if (kind === "resume") [waited, resume] = [false, waited ? { data, waited } : null];
  }
  return resume;
}

/** Steps that are over before the chosen one in the order of the text, and the choices of those that hold it. */
function keptOf(source: JournalState, outline: Outline, step: StepOutline): ReplayedEntry[] {
  const kept: ReplayedEntry[] = [];
  const given = new Set<StepPath>([""]);
  // A race is run anew when one of its branches is replayed: a winner on record would end it at once.
  const anew = step.parents.filter((path) => outline.get(path)?.type === "andRace");
  const steps = [...source.steps.values()]
    .map((state) => ({ state, outline: outline.get(state.path) }))
    .filter((item): item is typeof item & { outline: StepOutline } => item.outline !== undefined)
    .sort((a, b) => a.outline.order - b.outline.order);
  for (const { state: current, outline: place } of steps) {
    const { path } = place;
    if (step.parents.includes(path)) {
      if (current.branch !== null) kept.push(["begin", path, current.source, current.branch]);
      const input = `${path}/`;
      if (source.values.has(input)) kept.push(["begin", path, current.source, { input: source.values.get(input) }]);
      continue;
    }
    if (place.order >= step.order || anew.some((race) => place.parents.includes(race))) continue;
    const passed = current.status === "failed" && place.type === "andTap";
    if (current.status !== "done" && current.status !== "skipped" && !passed) continue;
    const output = passed ? current.source : current.output;
    if (current.branch === "none") kept.push(["begin", path, current.source, current.branch]);
    if (given.has(output)) kept.push(["same", path, output]);
    else {
      kept.push(["done", path, source.values.get(output) ?? null]);
      given.add(path);
    }
  }
  return kept;
}

/** `resume` of expressions when the step first began; when it was itself taken over by a replay, what that began with. */
function resumedBefore({ start }: JournalState, entries: readonly JournalEntry[], path: StepPath): unknown {
  const first = entries.findIndex(([kind, other]) => kind === "begin" && other === path);
  return stateFromJournal(start, entries.slice(0, Math.max(first, 0))).resume;
}

/**
 * Shared state as the steps made it that are taken over. That is how it was when the chosen step began, but for steps beside it.
 *
 * @param waited the chosen step, when it goes on as after it had waited: with what it had set by then
 */
function stateOf(
  { start }: JournalState,
  entries: readonly JournalEntry[],
  kept: readonly ReplayedEntry[],
  waited: StepPath | null,
) {
  const paths = new Set(kept.flatMap(([kind, path]) => (kind === "begin" ? [] : [path])));
  let state = start.state;
  for (const entry of entries) {
    const [kind, path] = entry;
    const counts = paths.has(path) || (kind === "wait" && path === waited);
    if (counts && (kind === "done" || kind === "same")) state = { ...state, ...entry[4] };
    else if (counts && kind === "wait") state = { ...state, ...entry[5] };
  }
  return state;
}
