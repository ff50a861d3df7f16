/** Runs an execution from the state in its journal until it settles, and records the outcome. */
import { formatDuration } from "../../lib/duration.ts";
import { CommitConflict, messageOf } from "../../lib/errors.ts";
import { isObject } from "../../lib/is-object.ts";
import { openExecutionKey } from "../../storage/keys.ts";
import { type BailStep, type Step, Suspend, type SuspendStep } from "../definition/definition.ts";
import type { JournalEntry, StepPath } from "../journal/entries.ts";
import { REPLAY_INPUT, type StepState, timeAfter } from "../journal/state.ts";
import {
  beginStep,
  completeStep,
  createFrame,
  EvaluationFailure,
  evaluate,
  expressionScope,
  type Frame,
  failStep,
  failTap,
  recordOutput,
  recordSame,
  runWork,
  type StepInput,
  suspendStep,
} from "./attempts.ts";
import { handleFailure, runContainer, runWorkflow, tryContainer } from "./containers.ts";
import type { Execution } from "./execution.ts";
import { executionLogger, type Lifetime } from "./lifetime.ts";
import { bailed, done, failed, type Outcome, stopped } from "./outcome.ts";
import { isAnswered } from "./resume-beside.ts";
import { UnrecordableError } from "./waiting-commits.ts";

/*
 * Walks the tree of steps of a definition with the state of an execution. A step that is recorded as done is not run again, so that
 * the same walk starts an execution, resumes it, replays it, and recovers it after a crash.
 *
 * Nothing of an abandoned branch may be recorded: `isAbandoned` is checked after every await, before an entry is appended.
 */

/** Runs steps one after the other: the output of each is the input of the next. */
async function runSteps(
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

/**
 * Resolves when the execution has settled, or was interrupted because the process is closing. Rejects when it cannot continue here:
 * its id is taken, another process has recovered it, or its first commit failed.
 */
export async function drive(execution: Execution): Promise<void> {
  const { state, definition, lifetime } = execution;
  if (definition.timeout !== null) {
    const ran = state.ran + (state.updatedAt - state.since);
    lifetime.setTimeLimit(Math.max(definition.timeout - ran, 0));
  }
  try {
    const { input } = state.start;
    const frame = createFrame(execution, input, definition);
    let outcome: Outcome;
    do outcome = await runWorkflow(runSteps, execution, "", definition, frame, { data: input, source: "" }, lifetime);
    while (isAnswered(execution, outcome));
    await conclude(execution, outcome);
  } catch (error) {
    const stop = lifetime.stopped?.kind;
    if (error instanceof CommitConflict || !execution.isRecorded || stop === "closing" || stop === "lost") throw error;
    // A bug of ours must not leave the execution hanging. Branches that still run are stopped and record nothing more.
    lifetime.stop({ kind: "lost", reason: "internal error", gracePeriod: 0 });
    executionLogger(execution).error({ err: error }, messageOf(error));
    // The outcome itself may be what cannot be recorded: then the state before it is used.
    if (error instanceof UnrecordableError || state.status !== "running") await execution.rollBack();
    const message = error instanceof UnrecordableError ? error.message : "internal error";
    execution.append(["error", "", timeAfter(execution.state), message]);
    await execution.writeRecord();
  } finally {
    lifetime.end();
  }
}

async function conclude(execution: Execution, outcome: Outcome): Promise<void> {
  if (execution.ending !== null) await execution.ending;
  if (execution.isAtRest) return;
  if (execution.endLost !== null) throw execution.endLost;
  const entry = outcomeEntry(execution, outcome);
  if (entry === null) {
    const stop = execution.lifetime.stopped?.kind;
    // Without this entry, the next process would think that the execution has killed this one.
    if (stop === "closing" && execution.isRecorded) execution.append(["interrupt", "", timeAfter(execution.state)]);
    await execution.flush();
    if (stop !== "lost") return;
    throw new CommitConflict([openExecutionKey(execution.state.start.number)]);
  }
  execution.append(entry);
  await execution.writeRecord();
}

/** The entry for the outcome; null when the execution was interrupted and continues later. */
function outcomeEntry(execution: Execution, outcome: Outcome): JournalEntry | null {
  const { state, definition } = execution;
  const at = timeAfter(execution.state);
  // The last output may be what was too large.
  if (execution.lifetime.stopped?.kind === "size") return stopEntry(execution, "", at);
  switch (outcome.kind) {
    case "bailed":
    case "done": {
      const problem = definition.resultCheck?.(outcome.data, "result") ?? null;
      return problem === null ? ["end", "", at, null, outcome.source] : ["error", "", at, problem];
    }
    case "failed":
      return ["error", outcome.path, at, outcome.message];
    case "suspended": {
      const path = outcome.paths[0] as StepPath;
      const step = state.steps.get(path);
      return ["suspend", path, at, step?.message ?? "", step?.data ?? null];
    }
    case "stopped":
      return stopEntry(execution, outcome.path, at);
  }
}

function stopEntry({ lifetime, definition }: Execution, path: StepPath, at: number): JournalEntry | null {
  const stop = lifetime.stopped;
  switch (stop?.kind) {
    case "suspend":
      return ["suspend", path, at, stop.reason, null];
    case "cancel":
      return ["cancel", "", at, stop.reason];
    case "timeout":
      return ["error", "", at, `the workflow timed out after ${formatDuration(definition.timeout ?? 0)}`];
    case "size":
      return ["error", "", at, stop.reason];
    default:
      return null;
  }
}
