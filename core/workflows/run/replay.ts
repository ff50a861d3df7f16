/** Plans a replay: what it takes over from its source, which is everything before the chosen step. */
import type { ReplayExecutionRequest, ResumeExecutionRequest } from "../../../generated/types.ts";
import { invalid } from "../../lib/errors.ts";
import {
  findStepByName,
  listsInside,
  listsOf,
  type Outline,
  type Step,
  type StepOutline,
  type ValueCheck,
  type WorkflowDefinition,
} from "../definition/definition.ts";
import {
  type JournalEntry,
  type Replay,
  type ReplayedEntry,
  type StepPath,
  type ValueSource,
  workflowPrefix,
} from "../journal/entries.ts";
import { alreadyResumed, notSuspended } from "../journal/load.ts";
import { type JournalState, type StepState, stateFromJournal, timeAfter, waitingSteps } from "../journal/state.ts";

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
  const isHandledIn = (place: string) => [...source.steps.values()].some((each) => isHandled(each, place, outline));
  if (!(step.handles ?? []).every(isHandledIn))
    throw invalid(
      `stepId: ${JSON.stringify(step.path)} is in an onError, and what that had handled did not fail in the end`,
    );
  const kept = keptEntries(source, outline, step);
  const resume = replayResume(recordedResume(source, entries, step.path) ?? recorded.resume, body);
  const resumed = resumeDataBefore(source, entries, step.path);
  const replay: Replay = {
    executionId: source.start.id,
    stepId: step.path,
    kept,
    ...replayInput(source, step.path, body),
    ...resume,
    ...(resumed !== null && { resumed }),
  };
  const waited = resume.resume === undefined ? null : step.path;
  return { replay, state: body.workflowStateOverride ?? sharedStateBefore(source, entries, kept, waited) };
}

function replayInput(
  { start }: JournalState,
  path: StepPath,
  { inputData }: ReplayExecutionRequest,
): Pick<Replay, "input"> {
  if (inputData !== undefined) return { input: { value: inputData } };
  // A replay of a replay from the same step has the input that the first replay gave it.
  const { replay } = start;
  return replay?.stepId === path && replay.input !== undefined ? { input: replay.input } : {};
}

function replayResume(
  recorded: Replay["resume"] | null,
  { resumeData }: ReplayExecutionRequest,
): Pick<Replay, "resume"> {
  if (resumeData !== undefined) return { resume: { data: resumeData, waited: true } };
  return recorded === null ? {} : { resume: recorded };
}

/** The last resume that the step got after it had suspended itself. */
function recordedResume(
  { start: { replay } }: JournalState,
  entries: readonly JournalEntry[],
  path: StepPath,
): NonNullable<Replay["resume"]> | null {
  let waited = false;
  // In a replay of a replay from the same step, the step started as if it had waited.
  let resume = replay?.stepId === path ? (replay.resume ?? null) : null;
  for (const [kind, other, , data] of entries) {
    if (other !== path) continue;
    if (kind === "wait") [waited, resume] = [true, null];
    else if (kind === "resume") [waited, resume] = [false, waited ? { data, waited } : null];
  }
  return resume;
}

/** The outputs of steps that come before the chosen one in the definition, and the choices of the container steps around it. */
function keptEntries(source: JournalState, outline: Outline, step: StepOutline): ReplayedEntry[] {
  const kept: ReplayedEntry[] = [];
  /** Maps sources of the original execution to sources of the replay that have the same value. */
  const given = new Map<ValueSource, ValueSource>([["", ""]]);
  // A race runs again when one of its branches is replayed: a recorded winner would end it at once.
  const { handles = [] } = step;
  const anew = step.parents.filter((path) => outline.get(path)?.type === "andRace");
  const steps = [...source.steps.values()]
    .map((state) => ({ state, outline: outline.get(state.path) }))
    .filter((item): item is typeof item & { outline: StepOutline } => item.outline !== undefined)
    .sort((a, b) => a.outline.order - b.outline.order);
  for (const { state: current, outline: place } of steps) {
    const { path, parents } = place;
    if (handles.some((place) => isHandled(current, place, outline))) {
      kept.push(["fail", path, current.message, current.code, current.failedAt]);
      continue;
    }
    if (step.parents.includes(path)) {
      if (current.branch !== null) kept.push(["begin", path, current.source, current.branch]);
      const input = `${path}/`;
      if (source.values.has(input)) kept.push(["begin", path, current.source, { input: source.values.get(input) }]);
      continue;
    }
    const runsAnew = anew.some((race) => parents.includes(race));
    // The handler of a failed step does not run that step again, so what is done inside it is kept even in a race that runs again.
    if (place.order >= step.order || (runsAnew && !handles.some((handled) => parents.includes(handled)))) continue;
    // A bail in a parallel branch decides again: if it were kept, it would end its workflow at once.
    if (current.branch === "bail") continue;
    const passed = current.status === "failed" && place.type === "andTap";
    if (current.status !== "done" && current.status !== "skipped" && !passed) continue;
    const output = passed ? current.source : current.output;
    if (current.branch === "none") kept.push(["begin", path, current.source, current.branch]);
    const known = given.get(output);
    if (known !== undefined) kept.push(["same", path, known]);
    else {
      kept.push(["done", path, source.values.get(output) ?? null]);
      given.set(output, path);
    }
  }
  return kept;
}

/** Whether a step has failed and an `onError` has handled it: that of the step itself, or of the workflow that ended with it. */
const isHandled = ({ path, status, failedAt }: StepState, place: string, outline: Outline): boolean =>
  failedAt !== "" &&
  (place === path ||
    (status === "failed" &&
      place === workflowPrefix(path) &&
      outline.get(path)?.type !== "andTap" &&
      !outline.get(path)?.handles?.includes(place)));

/** What expressions saw as `resume` when the step first started. */
function resumeDataBefore({ start }: JournalState, entries: readonly JournalEntry[], path: StepPath): unknown {
  const first = entries.findIndex(([kind, other]) => kind === "begin" && other === path);
  return stateFromJournal(start, entries.slice(0, Math.max(first, 0))).resume;
}

/**
 * Shared state after the steps that are taken over: as it was when the chosen step started, but without the changes of parallel steps.
 *
 * @param waited the chosen step, if it continues as if it had waited: then the changes that it had made by then are included
 */
function sharedStateBefore(
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

// Checks the data of a resume or replay, and finds the step at which a resume continues.

/**
 * @param state of a suspended execution
 * @returns the entry that resumes it
 * @throws ServiceError `invalid_input` for a step that does not wait, and for invalid data
 */
export function planResume(
  state: JournalState,
  definition: WorkflowDefinition,
  { resumeData, options }: ResumeExecutionRequest,
): JournalEntry {
  return resumeEntry(state, definition, findResumeTarget(state, definition, options?.stepId), resumeData);
}

/**
 * Plans the resume of a waiting step of a running execution. The request has to name the step: one without a step is meant for a
 * suspended execution, or is a repetition.
 *
 * @throws ServiceError `not_found` when no step or one that does not wait is named, `conflict` when it has been resumed already
 */
export function planResumeBeside(
  state: JournalState,
  definition: WorkflowDefinition,
  { resumeData, options }: ResumeExecutionRequest,
): JournalEntry {
  const { id } = state.start;
  const waiting = waitingSteps(state, definition.outline).map((step) => step.path);
  if (options?.stepId === undefined) throw notSuspended(id, "running", waiting);
  const { path } = findStepByName(definition.outline, options.stepId, "options.stepId");
  if (waiting.includes(path)) return resumeEntry(state, definition, path, resumeData);
  throw state.steps.get(path)?.resume?.waited ? alreadyResumed(path) : notSuspended(id, "running", waiting);
}

function resumeEntry(
  state: JournalState,
  definition: WorkflowDefinition,
  path: StepPath,
  resumeData: unknown,
): JournalEntry {
  const waits = state.steps.get(path)?.status === "waiting";
  // An execution that was suspended by a request has not asked for data: it may continue without.
  const check = waits || resumeData !== undefined ? resumeCheckFor(definition, path) : null;
  const problem = check?.(resumeData ?? null, "resumeData") ?? null;
  if (problem !== null) throw invalid(resumeData === undefined ? `resumeData is required: ${problem}` : problem);
  const at = timeAfter(state);
  return resumeData === undefined ? ["resume", path, at] : ["resume", path, at, resumeData];
}

/** @throws ServiceError `invalid_input` for data of a replay that does not match the schema of its step */
export function checkReplay(definition: WorkflowDefinition, path: StepPath, body: ReplayExecutionRequest): void {
  const { inputData, resumeData } = body;
  const problems: (string | null | undefined)[] = [];
  if (inputData !== undefined) problems.push(findStep(listsOf(definition), path)?.inputCheck?.(inputData, "inputData"));
  if (resumeData !== undefined) problems.push(resumeCheckFor(definition, path)?.(resumeData, "resumeData"));
  const messages = problems.filter((problem) => typeof problem === "string");
  if (messages.length > 0) throw invalid(messages.join("; "));
}

function findResumeTarget(state: JournalState, { outline }: WorkflowDefinition, stepId: string | undefined): StepPath {
  const suspendedAt = state.suspension?.stepId ?? "";
  if (stepId === undefined) return suspendedAt;
  const { path } = findStepByName(outline, stepId, "options.stepId");
  const waiting = waitingSteps(state, outline).map((step) => step.path);
  if (path === suspendedAt || waiting.includes(path)) return path;
  const others = [...new Set([suspendedAt, ...waiting])].filter((other) => other !== "");
  const hint = others.length === 0 ? "" : `; waiting: ${others.join(", ")}`;
  throw invalid(`options.stepId: step ${JSON.stringify(path)} does not wait to be resumed${hint}`);
}

/** The schema of the step itself takes precedence over that of the workflow. */
function resumeCheckFor(definition: WorkflowDefinition, path: StepPath): ValueCheck | null {
  return findStep(listsOf(definition), path)?.resumeCheck ?? definition.resumeCheck;
}

function findStep(lists: readonly (readonly Step[])[], path: StepPath): Step | undefined {
  for (const steps of lists) {
    for (const step of steps) {
      const found = step.path === path ? step : findStep(listsBelow(step), path);
      if (found !== undefined) return found;
    }
  }
  return undefined;
}

const listsBelow = (step: Step): readonly (readonly Step[])[] =>
  step.kind === "sub" ? [...listsInside(step), ...listsOf(step.called)] : listsInside(step);
