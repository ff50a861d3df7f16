/**
 * Walks the tree of steps of a definition with the state of an execution. A step that is recorded as done is not run again, so that
 * the same walk starts an execution, resumes it, replays it, and recovers it after a crash.
 *
 * Nothing of an abandoned branch may be recorded: `isAbandoned` is checked after every await, before an entry is appended.
 */

import { isObject } from "../../lib/is-object.ts";
import { type BailStep, type Step, Suspend, type SuspendStep } from "../definition/definition.ts";
import { REPLAY_INPUT, type StepState } from "../journal/state.ts";
import { runWork } from "./attempts.ts";
import { runContainer, tryContainer } from "./containers.ts";
import type { Execution } from "./execution.ts";
import type { Lifetime } from "./lifetime.ts";
import { handleFailure } from "./on-error.ts";
import { bailed, done, failed, type Outcome, stopped } from "./outcome.ts";
import { EvaluationFailure, evaluate, expressionScope, type Frame, type StepInput } from "./scope.ts";
import { beginStep, completeStep, failStep, failTap, recordOutput, recordSame, suspendStep } from "./step-entries.ts";

/** Runs steps one after the other: the output of each is the input of the next. */
export async function runSteps(
  execution: Execution,
  steps: readonly Step[],
  frame: Frame,
  given: StepInput,
  lifetime: Lifetime,
): Promise<Outcome> {
  let last: Outcome & { kind: "done" } = done(given.data, given.source);
  for (const step of steps) {
    while (execution.slice.isOver) await execution.slice.next();
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
  const known = execution.state.steps.get(step.path);
  const tried = tryStep(execution, step, frame, before, known, lifetime);
  if (step.onError === null) return tried;
  const given = inputFor(execution, step, known, before);
  return handleFailure(runSteps, execution, step, frame, given, lifetime, tried);
}

function tryStep(
  execution: Execution,
  step: Step,
  frame: Frame,
  before: StepInput,
  known: StepState | undefined,
  lifetime: Lifetime,
): Outcome | Promise<Outcome> {
  const { state } = execution;
  if (known !== undefined) {
    if (known.status === "done" || known.status === "skipped")
      return done(state.values.get(known.output), known.output);
    if (known.status === "waiting") return { kind: "suspended", paths: [step.path] };
    if (known.status === "failed" && known.resume === null && known.endedAt !== null) {
      return isTap(step) ? done(before.data, before.source) : failed(known.failedAt, known.message, false, known.code);
    }
  }
  if (lifetime.stopped !== null) return stopped(step.path);
  const given = inputFor(execution, step, known, before);
  const problem = step.inputCheck?.(given.data, "input") ?? null;
  if (problem !== null) {
    beginStep(execution, step, known, given);
    return isTap(step) ? failTap(execution, step, given, problem) : failStep(execution, step, problem);
  }
  switch (step.kind) {
    case "set":
      return runSet(execution, step, frame, given, known);
    case "bail":
      return runBail(execution, step, frame, given, known);
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

/** Usually the output of the previous step. A replay may give its first step another input. */
function inputFor({ state }: Execution, step: Step, known: StepState | undefined, before: StepInput): StepInput {
  const { replay } = state.start;
  if (replay?.stepId === step.path && replay.input !== undefined) {
    return { data: replay.input.value, source: REPLAY_INPUT };
  }
  // After a restart the step has the same input as before: that of the recorded source.
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

function runBail(
  execution: Execution,
  step: BailStep,
  frame: Frame,
  given: StepInput,
  known: StepState | undefined,
): Outcome {
  const scope = expressionScope(execution, frame, given.data);
  const holds = evaluate(step.condition, scope);
  const value = holds === true ? evaluate(step.result, scope) : holds === false ? given.data : holds;
  const problem = value instanceof EvaluationFailure ? value.message : (step.outputCheck?.(value, "output") ?? null);
  if (problem !== null) {
    beginStep(execution, step, known, given);
    return failStep(execution, step, problem);
  }
  beginStep(execution, step, known, given, holds === true ? "bail" : "none");
  if (holds !== true) return recordSame(execution, step, given.data, given.source);
  const { data, source } = recordOutput(execution, step, value);
  return bailed(data, source);
}

function runSuspend(
  execution: Execution,
  step: SuspendStep,
  frame: Frame,
  given: StepInput,
  known: StepState | undefined,
): Outcome {
  beginStep(execution, step, known, given);
  const resume = known?.resume;
  if (resume?.waited === true) {
    const { data } = resume;
    if (isObject(given.data) && (isObject(data) || data === undefined)) {
      return completeStep(execution, step, { ...given.data, ...(data as object | undefined) });
    }
    return completeStep(execution, step, data ?? null);
  }
  const scope = expressionScope(execution, frame, given.data);
  const reason = evaluate(step.reason, scope);
  const data = reason instanceof EvaluationFailure ? reason : evaluate(step.data, scope);
  if (data instanceof EvaluationFailure) return failStep(execution, step, data.message);
  return suspendStep(execution, step, new Suspend(String(reason), data));
}
