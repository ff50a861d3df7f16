/** Checks the data of a resume or replay, and finds the step at which a resume continues. */

import type { ReplayExecutionRequest, ResumeExecutionRequest } from "../../../generated/types.ts";
import { invalid } from "../../lib/errors.ts";
import {
  listsInside,
  listsOf,
  type Step,
  type StepsOfWorkflow,
  type ValueCheck,
  type WorkflowDefinition,
} from "../definition/definition.ts";
import { findStepByName } from "../definition/find-step.ts";
import type { JournalEntry, StepPath } from "../journal/entries.ts";
import { alreadyResumed, notSuspended } from "../journal/errors.ts";
import { type JournalState, timeAfter } from "../journal/state.ts";
import { waitingSteps } from "../journal/superseded.ts";

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
  if (inputData !== undefined) problems.push(findStep(definition, path)?.inputCheck?.(inputData, "inputData"));
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
  return findStep(definition, path)?.resumeCheck ?? definition.resumeCheck;
}

function findStep(workflow: StepsOfWorkflow, path: StepPath): Step | undefined {
  const find = (steps: readonly Step[]): Step | undefined => {
    for (const step of steps) {
      const found = step.path === path ? step : find(listsBelow(step).flat());
      if (found !== undefined) return found;
    }
    return undefined;
  };
  return find(listsOf(workflow).flat());
}

const listsBelow = (step: Step): readonly (readonly Step[])[] =>
  step.kind === "sub" ? [...listsInside(step), ...listsOf(step.called)] : listsInside(step);
