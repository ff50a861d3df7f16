/**
 * Walks the tree of a definition against the journal of an execution. What is on record is not done again, so that the same
 * walk begins an execution, resumes it, replays it, and takes it up after a crash.
 *
 * Nothing of a branch that is over may be recorded: after every wait, and before every entry that follows one, `over` is asked.
 */

import { messageOf } from "../../lib/errors.ts";
import { isObject } from "../../lib/is-object.ts";
import { ExpressionError } from "../../manifest/expression.ts";
import type { Step, StepScope, SuspendStep, ValueCheck } from "../definition/definition.ts";
import type { StepPath, ValueSource } from "../journal/entries.ts";
import { REPLAY_INPUT, type StepState, timeAfter } from "../journal/state.ts";
import { runWork } from "./attempts.ts";
import { runContainer, tryContainer } from "./containers.ts";
import type { Execution } from "./execution.ts";
import type { Lifetime } from "./lifetime.ts";
import { loggerOf } from "./logger.ts";
import { done, failed, type Outcome, stopped } from "./outcome.ts";

/** The workflow that steps belong to: the one at the top, or a sub-workflow. */
export interface Frame {
  readonly input: unknown;
  /** Outputs by id. Grows: expressions that give the whole of it give a copy. */
  readonly steps: Record<string, unknown>;
}

/** What a step starts from. */
export interface StepInput {
  readonly data: unknown;
  readonly source: ValueSource;
}

/** @param prefix of the paths of its steps: empty, or the path of the sub-workflow step and `/` */
export function frameOf({ state }: Execution, input: unknown, prefix: StepPath): Frame {
  const steps = Object.create(null) as Record<string, unknown>;
  for (const { path, status, output } of state.steps.values()) {
    if ((status !== "done" && status !== "skipped") || !path.startsWith(prefix)) continue;
    const id = path.slice(prefix.length);
    if (!id.includes("/")) steps[id] = state.values.get(output);
  }
  return { input, steps };
}

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
    return isTap(step) ? passInput(execution, step, given, problem) : fail(execution, step, problem);
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
        ? runContainer(execution, step, frame, given, known, lifetime)
        : tryContainer(execution, step, frame, given, lifetime);
  }
}

const isTap = (step: Step): boolean => step.kind === "work" && step.tap;

/** A tap that failed changes nothing; the log has it. */
export function passInput(execution: Execution, step: Step, given: StepInput, message: string): Outcome {
  fail(execution, step, message);
  loggerOf(execution).warn({ stepId: step.path }, `andTap: ${message}`);
  return done(given.data, given.source);
}

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

/** Records that a step begins, unless that is on record: it was running when the process ended. */
export function beginStep(
  execution: Execution,
  step: Step,
  known: StepState | undefined,
  given: StepInput,
  extra?: unknown,
): void {
  if (known?.status === "running") return;
  if (extra === undefined) execution.append(["begin", step.path, timeAfter(execution.state), given.source]);
  else execution.append(["begin", step.path, timeAfter(execution.state), given.source, extra]);
}

export function scopeOf(execution: Execution, frame: Frame, data: unknown): StepScope {
  const { start, state, resume } = execution.state;
  return {
    data,
    input: frame.input,
    state,
    context: start.context,
    user: start.user ?? null,
    steps: frame.steps,
    resume,
  };
}

export function fail(execution: Execution, step: Step, message: string): Outcome {
  execution.append(["fail", step.path, timeAfter(execution.state), message]);
  return failed(step.path, message);
}

/** @returns what the step gives, recorded; a failure when it does not fit */
function give(execution: Execution, step: Step, output: unknown): Outcome {
  const problem = step.outputCheck?.(output, "output") ?? null;
  if (problem !== null) return fail(execution, step, problem);
  execution.append(["done", step.path, timeAfter(execution.state), output]);
  return done(output, step.path);
}

/** @returns what the step passes on, which is on record already; a failure, not recorded yet, when it does not fit */
export function pass(execution: Execution, step: Step, data: unknown, source: ValueSource): Outcome {
  const problem = step.outputCheck?.(data, "output") ?? null;
  if (problem !== null) return failed(step.path, problem);
  execution.append(["same", step.path, timeAfter(execution.state), source]);
  return done(data, source);
}

function runSet(
  execution: Execution,
  step: Step & { kind: "set" },
  frame: Frame,
  given: StepInput,
  known: StepState | undefined,
): Outcome {
  beginStep(execution, step, known, given);
  const value = evaluate(step.evaluate, scopeOf(execution, frame, given.data));
  return value instanceof ScopeProblem ? fail(execution, step, value.message) : give(execution, step, value);
}

/** An expression that cannot be computed. */
export class ScopeProblem {
  readonly message: string;
  constructor(message: string) {
    this.message = message;
  }
}

export function evaluate(expression: (scope: StepScope) => unknown, scope: StepScope): unknown {
  try {
    const value = expression(scope);
    return value === undefined ? null : value;
  } catch (thrown) {
    if (thrown instanceof ExpressionError) return new ScopeProblem(thrown.message);
    return new ScopeProblem(messageOf(thrown));
  }
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
      return give(execution, step, { ...given.data, ...(data as object | undefined) });
    }
    return give(execution, step, data ?? null);
  }
  const scope = scopeOf(execution, frame, given.data);
  const reason = evaluate(step.reason, scope);
  const data = reason instanceof ScopeProblem ? reason : evaluate(step.data, scope);
  if (data instanceof ScopeProblem) return fail(execution, step, data.message);
  return suspend(execution, step, String(reason), data);
}

/** @param change of shared state */
export function suspend(
  execution: Execution,
  step: Step,
  reason: string,
  data: unknown,
  change?: Record<string, unknown>,
): Outcome {
  const check: ValueCheck | null = step.suspendCheck ?? execution.definition.suspendCheck;
  const problem = check?.(data, "suspend data") ?? null;
  if (problem !== null) return fail(execution, step, problem);
  const at = timeAfter(execution.state);
  if (change === undefined) execution.append(["wait", step.path, at, reason, data]);
  else execution.append(["wait", step.path, at, reason, data, change]);
  return { kind: "suspended", paths: [step.path] };
}
