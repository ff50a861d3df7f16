/**
 * Walks the tree of a definition against the journal of an execution. What is on record is not done again, so that the same
 * walk begins an execution, resumes it, replays it, and takes it up after a crash.
 *
 * Nothing of a branch that is over may be recorded: after every wait, and before every entry that follows one, `over` is asked.
 */

import { isObject } from "../../lib/is-object.ts";
import type { Step, SuspendStep } from "../definition/definition.ts";
import { REPLAY_INPUT, type StepState } from "../journal/state.ts";
import { runWork } from "./attempts.ts";
import { runContainer, tryContainer } from "./containers.ts";
import type { Execution } from "./execution.ts";
import type { Lifetime } from "./lifetime.ts";
import { done, failed, type Outcome, stopped } from "./outcome.ts";
import { EvaluationFailure, evaluate, expressionScope, type Frame, type StepInput } from "./scope.ts";
import { beginStep, completeStep, failStep, failTap, suspendStep } from "./step-entries.ts";

/** Steps one after the other: each is given what the one before gave. */
export async function runSteps(
  execution: Execution,
  steps: readonly Step[],
  frame: Frame,
  given: StepInput,
  lifetime: Lifetime,
): Promise<Outcome> {
  let last: Outcome & { kind: "done" } = done(given.data, given.source);
  for (const step of steps) {
    const running = runStep(execution, step, frame, last, lifetime);
    const outcome = running instanceof Promise ? await running : running;
    if (outcome.kind !== "done") return outcome;
    frame.steps[step.id] = outcome.data;
    last = outcome;
  }
  return last;
}

function runStep(
  execution: Execution,
  step: Step,
  frame: Frame,
  before: StepInput,
  lifetime: Lifetime,
): Outcome | Promise<Outcome> {
  const { state } = execution;
  const known = state.steps.get(step.path);
  if (known !== undefined) {
    if (known.status === "done" || known.status === "skipped")
      return done(state.values.get(known.output), known.output);
    if (known.status === "waiting") return { kind: "suspended", paths: [step.path] };
    if (known.status === "failed" && known.resume === null && known.endedAt !== null) {
      return isTap(step) ? done(before.data, before.source) : failed(step.path, known.message);
    }
  }
  if (lifetime.stopped !== null) return stopped(step.path);
  const given = inputOf(execution, step, known, before);
  const problem = step.inputCheck?.(given.data, "input") ?? null;
  if (problem !== null) {
    beginStep(execution, step, known, given);
    return isTap(step) ? failTap(execution, step, given, problem) : failStep(execution, step, problem);
  }
  switch (step.kind) {
    case "set":
      return runSet(execution, step, frame, given, known);
    case "suspend":
      return runSuspend(execution, step, frame, given, known);
    case "work":
      beginStep(execution, step, known, given);
      return runWork(execution, step, frame, given, lifetime);
    default:
      return step.retry.attempts === 0 && step.timeout === null
        ? runContainer(runSteps, execution, step, frame, given, known, lifetime)
        : tryContainer(runSteps, execution, step, frame, given, lifetime);
  }
}

const isTap = (step: Step): boolean => step.kind === "work" && step.tap;

/** A replay may give its step another input, the first time that it runs. */
function inputOf({ state }: Execution, step: Step, known: StepState | undefined, before: StepInput): StepInput {
  const { replay } = state.start;
  if (replay?.stepId === step.path && replay.input !== undefined) {
    return { data: replay.input.value, source: REPLAY_INPUT };
  }
  // After a restart the same input as before: the source on record.
  return known?.status === "running" && known.source !== before.source
    ? { data: state.values.get(known.source), source: known.source }
    : before;
}

function runSet(
  execution: Execution,
  step: Step & { kind: "set" },
  frame: Frame,
  given: StepInput,
  known: StepState | undefined,
): Outcome {
  beginStep(execution, step, known, given);
  const value = evaluate(step.evaluate, expressionScope(execution, frame, given.data));
  return value instanceof EvaluationFailure
    ? failStep(execution, step, value.message)
    : completeStep(execution, step, value);
}

function runSuspend(
  execution: Execution,
  step: SuspendStep,
  frame: Frame,
  given: StepInput,
  known: StepState | undefined,
): Outcome {
  beginStep(execution, step, known, given);
  const answer = known?.resume;
  if (answer?.waited === true) {
    const { data } = answer;
    if (isObject(given.data) && (isObject(data) || data === undefined)) {
      return completeStep(execution, step, { ...given.data, ...(data as object | undefined) });
    }
    return completeStep(execution, step, data ?? null);
  }
  const scope = expressionScope(execution, frame, given.data);
  const reason = evaluate(step.reason, scope);
  const data = reason instanceof EvaluationFailure ? reason : evaluate(step.data, scope);
  if (data instanceof EvaluationFailure) return failStep(execution, step, data.message);
  return suspendStep(execution, step, String(reason), data);
}
