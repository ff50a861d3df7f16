/** Container steps, which contain other steps: andWhen, andAll, andRace and andWorkflow, with their retries and time limits. */
import { formatDuration } from "../../lib/duration.ts";
import { isObject } from "../../lib/is-object.ts";
import {
  type AllStep,
  type RaceStep,
  type Step,
  type StepsOfWorkflow,
  type SubStep,
  subWorkflowInputSource,
  type WhenStep,
} from "../definition/definition.ts";
import type { Branch, StepPath, SubWorkflowInput, ValueSource } from "../journal/entries.ts";
import { entryJson } from "../journal/record.ts";
import { type StepState, timeAfter } from "../journal/state.ts";
import {
  beginStep,
  createFrame,
  EvaluationFailure,
  evaluate,
  expressionScope,
  type Frame,
  failStep,
  isFinalError,
  passValueOn,
  pauseLeft,
  type RunSteps,
  recordFailure,
  recordOutput,
  type StepInput,
} from "./attempts.ts";
import type { Execution } from "./execution.ts";
import { Lifetime, type Stop } from "./lifetime.ts";
import { bailed, failed, type Outcome, stopped } from "./outcome.ts";
import { isAnswered } from "./resume-beside.ts";

/*
 * `onError`: steps that run when a step, or a step of a workflow, has finally failed. Their progress is recorded like any other: a
 * failed step is not run again, so a walk after a restart reaches the same error, and from there the steps that handle it.
 */

type Failed = Outcome & { kind: "failed" };

/** Adds the variable `error` for the expressions of an `onError`. */
const handling = (frame: Frame, { message, code, path }: Failed): Frame => ({
  ...frame,
  error: { message, code, stepId: path },
});

/**
 * The outcome of a step with an `onError`, whose output replaces that of the failed step.
 *
 * @param tried the outcome of the step itself, after all its tries
 * @param given the input of the step, which its `onError` gets too
 */
export async function handleFailure(
  runSteps: RunSteps,
  execution: Execution,
  step: Step,
  frame: Frame,
  given: StepInput,
  lifetime: Lifetime,
  tried: Outcome | Promise<Outcome>,
): Promise<Outcome> {
  const outcome = await tried;
  if (outcome.kind !== "failed" || step.onError === null) return outcome;
  if (lifetime.isAbandoned) return stopped(step.path);
  const handled = await runSteps(execution, step.onError, handling(frame, outcome), given, lifetime);
  if (handled.kind !== "done") return handled;
  if (lifetime.isAbandoned) return stopped(step.path);
  const passed = passValueOn(execution, step, handled.data, handled.source);
  return passed.kind === "failed" ? failStep(execution, step, passed.message) : passed;
}

/** Runs the steps of a workflow, then its `onError` if one of them has failed. A workflow that bailed before a restart is not run again. */
export function runWorkflow(
  runSteps: RunSteps,
  execution: Execution,
  prefix: string,
  { steps, onError }: StepsOfWorkflow,
  frame: Frame,
  given: StepInput,
  lifetime: Lifetime,
): Outcome | Promise<Outcome> {
  const { values, bailed: ended } = execution.state;
  const source = ended.get(prefix);
  if (source !== undefined) return bailed(values.get(source), source);
  const running = runSteps(execution, steps, frame, given, lifetime);
  if (onError === null) return running;
  return running.then((outcome) => {
    if (outcome.kind !== "failed" || lifetime.isAbandoned) return outcome;
    return runSteps(execution, onError, handling(frame, outcome), given, lifetime);
  });
}

const BRANCH_DECIDED: Stop = { kind: "branch", reason: "another branch has decided", gracePeriod: 0 };

const EXECUTION_LOST: Stop = { kind: "lost", reason: "the execution cannot go on here", gracePeriod: 0 };

/**
 * Runs all branches until the outcome of one of them decides, which stops the others. A branch that waits continues when a step in it
 * is resumed while others still run.
 *
 * @param decisive the kind of outcome that decides; a branch that bails always does
 * @returns the outcomes; undefined for branches that were stopped and have not returned yet
 */
function runBranches(
  runSteps: RunSteps,
  execution: Execution,
  branches: readonly (readonly Step[])[],
  frame: Frame,
  given: StepInput,
  lifetime: Lifetime,
  decisive: Outcome["kind"],
): Promise<{ outcomes: (Outcome | undefined)[]; decider: Outcome | null }> {
  const group = new Lifetime(lifetime);
  const outcomes: (Outcome | undefined)[] = branches.map(() => undefined);
  return new Promise((resolve, reject) => {
    let running = branches.length;
    const waiting = new Set<StepPath>();
    const forget = (paths: Iterable<StepPath>) => {
      for (const path of paths) if (waiting.delete(path)) execution.resumable.delete(path);
    };
    const finish = (decider: Outcome | null) => {
      forget(waiting);
      group.end();
      resolve({ outcomes, decider });
    };
    const abort = (error: unknown) => {
      forget(waiting);
      group.stop(EXECUTION_LOST);
      group.end();
      reject(error as Error);
    };
    const wait = (index: number, paths: readonly StepPath[]) => {
      const goOn = () => {
        forget(paths);
        outcomes[index] = undefined;
        running++;
        run(index);
      };
      for (const path of paths) {
        waiting.add(path);
        execution.resumable.set(path, goOn);
      }
    };
    const run = (index: number) => {
      runSteps(execution, branches[index]!, frame, given, group).then((outcome) => {
        // Another branch has decided already: later outcomes are ignored.
        if (group.stoppedItself) return;
        if (isAnswered(execution, outcome)) return run(index);
        outcomes[index] = outcome;
        running--;
        if (outcome.kind === decisive || outcome.kind === "bailed") {
          group.stop(BRANCH_DECIDED);
          finish(outcome);
        } else if (running === 0) finish(null);
        else {
          if (outcome.kind === "suspended") wait(index, outcome.paths);
          // The other branches may run for long: write the outcome of this one now, so that a crash does not lose it.
          execution.flush().catch(abort);
        }
      }, abort);
    };
    const beginAll = async () => {
      for (const index of branches.keys()) {
        while (execution.slice.isOver) await execution.slice.next();
        // A branch that has already started has decided.
        if (group.stoppedItself) return;
        run(index);
      }
    };
    beginAll().catch(abort);
  });
}

/** The outcome when no branch has decided: stopped if one of them was, suspended if some of them wait; otherwise undefined. */
function unfinishedOutcome(outcomes: readonly (Outcome | undefined)[]): Outcome | undefined {
  const stop = outcomes.find((outcome) => outcome?.kind === "stopped");
  if (stop !== undefined) return stop;
  const paths = outcomes.flatMap((outcome) => (outcome?.kind === "suspended" ? outcome.paths : []));
  return paths.length === 0 ? undefined : { kind: "suspended", paths };
}

/** Runs the branches of an andAll. One that fails stops the others. While one waits, the others finish and keep their outputs. */
async function runAll(
  runSteps: RunSteps,
  execution: Execution,
  step: AllStep,
  frame: Frame,
  given: StepInput,
  lifetime: Lifetime,
): Promise<Outcome> {
  const { outcomes, decider } = await runBranches(runSteps, execution, step.branches, frame, given, lifetime, "failed");
  if (lifetime.isAbandoned) return stopped(step.path);
  if (decider !== null) return decider;
  const unfinished = unfinishedOutcome(outcomes);
  if (unfinished !== undefined) return unfinished;
  const merged = mergeOutputs(step.branches, outcomes);
  const problem = step.outputCheck?.(merged, "output") ?? null;
  if (problem !== null) return failed(step.path, problem);
  return recordOutput(execution, step, merged);
}

/** Merges all outputs into one object: members of objects, and other outputs by the id of the last step of their branch. */
function mergeOutputs(branches: AllStep["branches"], outcomes: readonly (Outcome | undefined)[]): object {
  const members = new Map<string, unknown>();
  for (const [index, outcome] of outcomes.entries()) {
    if (outcome?.kind !== "done") continue;
    const { data } = outcome;
    if (isObject(data)) for (const key of Object.keys(data)) members.set(key, (data as Record<string, unknown>)[key]);
    else members.set(branches[index]!.at(-1)?.id ?? "", data);
  }
  // `fromEntries` makes every name an own member, even `__proto__`.
  return Object.fromEntries(members);
}

/** After a restart: the output of the branch that had won before it. The others are not run again. */
function recordedWinner({ state }: Execution, { branches }: RaceStep): { data: unknown; source: ValueSource } | null {
  const last = branches.map((steps) => state.steps.get(steps.at(-1)?.path ?? ""));
  const over = last.filter((step) => step?.status === "done" || step?.status === "skipped");
  const [first] = over.sort((a, b) => (a?.endedAt ?? 0) - (b?.endedAt ?? 0));
  return first === undefined ? null : { data: state.values.get(first.output), source: first.output };
}

/** Runs the branches of an andRace. The first that succeeds wins and stops the others. Waits only when no branch can succeed unresumed. */
async function runRace(
  runSteps: RunSteps,
  execution: Execution,
  step: RaceStep,
  frame: Frame,
  given: StepInput,
  lifetime: Lifetime,
): Promise<Outcome> {
  const won = recordedWinner(execution, step);
  if (won !== null) return passValueOn(execution, step, won.data, won.source);
  const { outcomes, decider } = await runBranches(runSteps, execution, step.branches, frame, given, lifetime, "done");
  if (lifetime.isAbandoned) return stopped(step.path);
  if (decider?.kind === "bailed") return decider;
  if (decider?.kind === "done") return passValueOn(execution, step, decider.data, decider.source);
  return unfinishedOutcome(outcomes) ?? outcomes[0] ?? stopped(step.path);
}

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
