/** Container steps, which contain other steps: andWhen, andAll, andRace and andWorkflow, with their retries and time limits. */
import { formatDuration } from "../../lib/duration.ts";
import { type Step, type SubStep, subWorkflowInputSource, type WhenStep } from "../definition/definition.ts";
import type { Branch, StepPath, SubWorkflowInput, ValueSource } from "../journal/entries.ts";
import { entryJson } from "../journal/outcome-text.ts";
import { type StepState, timeAfter } from "../journal/state.ts";
import { isFinalError, pauseLeft } from "./attempts.ts";
import { runAll, runRace } from "./branches.ts";
import type { Execution } from "./execution.ts";
import { Lifetime } from "./lifetime.ts";
import { runWorkflow } from "./on-error.ts";
import { failed, type Outcome, stopped } from "./outcome.ts";
import {
  createFrame,
  EvaluationFailure,
  evaluate,
  expressionScope,
  type Frame,
  type RunSteps,
  type StepInput,
} from "./scope.ts";
import { beginStep, passValueOn, recordFailure } from "./step-entries.ts";

type ContainerStep = Exclude<Step, { kind: "set" | "bail" | "suspend" | "work" }>;

/** Runs a container step that has retries or a time limit of its own. A new try does not repeat what has succeeded inside. */
export async function tryContainer(
  runSteps: RunSteps,
  execution: Execution,
  step: ContainerStep,
  frame: Frame,
  given: StepInput,
  lifetime: Lifetime,
): Promise<Outcome> {
  for (;;) {
    const known = execution.state.steps.get(step.path);
    const pause = pauseLeft(execution, step);
    if (pause > 0 && !(await lifetime.sleep(pause))) return stopped(step.path);
    const attempt = (known?.tries ?? 0) + 1;
    const used = known?.used ?? 0;
    const begun = performance.now();
    const own = new Lifetime(lifetime, step.timeout === null ? null : Math.max(step.timeout - used, 0));
    let outcome: Outcome;
    try {
      outcome = await runContainer(runSteps, execution, step, frame, given, known, own, attempt <= step.retry.attempts);
      if (outcome.kind === "stopped" && own.stoppedItself && lifetime.stopped === null) {
        outcome = failed(step.path, `timed out after ${formatDuration(step.timeout ?? 0)}`);
        if (attempt > step.retry.attempts) recordFailure(execution, step, outcome);
      }
      if (step.timeout !== null && comesToRest(outcome, lifetime)) recordUsed(execution, step, used, begun);
    } finally {
      own.end();
    }
    if (outcome.kind !== "failed" || outcome.isPermanent || attempt > step.retry.attempts) return outcome;
    if (lifetime.isAbandoned) return stopped(step.path);
    const final = isFinalError(execution, step, frame, given.data, outcome);
    if (final !== false) {
      const failure = { ...outcome, message: final === true ? outcome.message : final };
      recordFailure(execution, step, failure);
      return failure;
    }
    execution.append([
      "retry",
      step.path,
      timeAfter(execution.state),
      attempt,
      outcome.message,
      failedSteps(execution, step.path),
    ]);
    // On disk before the next try starts: a restart must not grant this one again.
    await execution.flush();
  }
}

/** Whether the same try continues later. */
const comesToRest = ({ kind }: Outcome, { stopped }: Lifetime): boolean =>
  kind === "suspended" ? stopped === null || stopped.kind === "suspend" : stopped?.kind === "suspend";

/** Records the used part of the time limit, which continues from there: time in which nothing inside runs does not count. */
function recordUsed(execution: Execution, { path }: ContainerStep, before: number, begun: number): void {
  const used = before + Math.round(performance.now() - begun);
  if (used !== before) execution.append(["rest", path, timeAfter(execution.state), used]);
}

/** The failed steps in a container, which run again with its next try. Failed taps do not: their failure does not matter. */
const failedSteps = ({ state, definition }: Execution, path: StepPath): StepPath[] =>
  [...state.steps.values()]
    .filter((step) => step.status === "failed" && step.endedAt !== null)
    .filter((step) => {
      const place = definition.outline.get(step.path);
      return place?.type !== "andTap" && place?.parents.includes(path);
    })
    .map((step) => step.path);

/** @param hasNextTry whether a failure is followed by another try, and is therefore not recorded as one */
export async function runContainer(
  runSteps: RunSteps,
  execution: Execution,
  step: ContainerStep,
  frame: Frame,
  given: StepInput,
  known: StepState | undefined,
  lifetime: Lifetime,
  hasNextTry = false,
): Promise<Outcome> {
  const outcome = await runInside(runSteps, execution, step, frame, given, known, lifetime);
  if (lifetime.isAbandoned) return stopped(outcome.kind === "stopped" ? outcome.path : step.path);
  if (outcome.kind === "failed" && (outcome.isPermanent || !hasNextTry)) recordFailure(execution, step, outcome);
  return outcome;
}

function runInside(
  runSteps: RunSteps,
  execution: Execution,
  step: ContainerStep,
  frame: Frame,
  given: StepInput,
  known: StepState | undefined,
  lifetime: Lifetime,
): Outcome | Promise<Outcome> {
  switch (step.kind) {
    case "when":
      return runWhen(runSteps, execution, step, frame, given, known, lifetime);
    case "sub":
      return runSub(runSteps, execution, step, frame, given, known, lifetime);
    case "all":
      beginStep(execution, step, known, given);
      return runAll(runSteps, execution, step, frame, given, lifetime);
    case "race":
      beginStep(execution, step, known, given);
      return runRace(runSteps, execution, step, frame, given, lifetime);
  }
}

async function runWhen(
  runSteps: RunSteps,
  execution: Execution,
  step: WhenStep,
  frame: Frame,
  given: StepInput,
  known: StepState | undefined,
  lifetime: Lifetime,
): Promise<Outcome> {
  // A recorded choice is not made again: the values in its condition may have changed since.
  let branch: Branch | null = known?.branch ?? null;
  if (branch === null) {
    const holds = evaluate(step.condition, expressionScope(execution, frame, given.data));
    const problem =
      holds instanceof EvaluationFailure ? holds.message : typeof holds === "boolean" ? null : NOT_A_CONDITION;
    if (problem !== null) {
      beginStep(execution, step, known, given);
      return failed(step.path, problem, true);
    }
    branch = holds === true ? "then" : step.else === null ? "none" : "else";
  }
  beginStep(execution, step, known, given, branch);
  if (branch === "none") return passValueOn(execution, step, given.data, given.source);
  const outcome = await runSteps(execution, (branch === "then" ? step.then : step.else) ?? [], frame, given, lifetime);
  if (outcome.kind !== "done" || lifetime.isAbandoned) return outcome;
  return passValueOn(execution, step, outcome.data, outcome.source);
}

const NOT_A_CONDITION = "the condition gave neither true nor false";

/** The input as the journal stores it: a reference if the value is there already. */
function subWorkflowInput({ known, state }: Execution, source: ValueSource, input: unknown): SubWorkflowInput {
  if (state.values.has(source)) return { same: source };
  const text = entryJson(input);
  const same = known.sourceOf(input) ?? known.sourceOfEqual(text);
  if (same !== undefined) return { same };
  known.add(source, input, text);
  return { input };
}

async function runSub(
  runSteps: RunSteps,
  execution: Execution,
  step: SubStep,
  frame: Frame,
  before: StepInput,
  known: StepState | undefined,
  lifetime: Lifetime,
): Promise<Outcome> {
  const { values } = execution.state;
  const prefix = `${step.path}/`;
  const source = subWorkflowInputSource(step.path);
  let input = values.get(source);
  if (!values.has(source)) {
    input = evaluate(step.input, expressionScope(execution, frame, before.data));
    const problem = input instanceof EvaluationFailure ? input.message : (step.startCheck?.(input, "input") ?? null);
    if (problem !== null) {
      beginStep(execution, step, known, before);
      return failed(step.path, problem, true);
    }
  }
  beginStep(execution, step, known, before, subWorkflowInput(execution, source, input));
  const inner = createFrame(execution, input, step.called);
  const given = { data: input, source };
  const outcome = await runWorkflow(runSteps, execution, prefix, step.called, inner, given, lifetime);
  if ((outcome.kind !== "done" && outcome.kind !== "bailed") || lifetime.isAbandoned) return outcome;
  const problem = step.resultCheck?.(outcome.data, "result") ?? null;
  return problem === null ? passValueOn(execution, step, outcome.data, outcome.source) : failed(step.path, problem);
}
