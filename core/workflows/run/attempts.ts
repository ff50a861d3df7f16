/** Runs the work of a step: its tries, their time limits and pauses, and the entry with which each of them ends. */
import { createHash } from "node:crypto";
import { storedTime } from "../../lib/clock.ts";
import { formatDuration } from "../../lib/duration.ts";
import { caught, codeOf, messageOf, ServiceError } from "../../lib/errors.ts";
import { withoutSecrets } from "../../lib/secrets.ts";
import { isThenable } from "../../lib/thenable.ts";
import { ExpressionError } from "../../manifest/expression.ts";
import {
  listsInside,
  listsOf,
  type Retry,
  type Step,
  type StepError,
  type StepScope,
  type StepsOfWorkflow,
  Suspend,
  type ValueCheck,
  type WorkStep,
} from "../definition/definition.ts";
import type { StepPath, ValueSource } from "../journal/entries.ts";
import { entryJson } from "../journal/record.ts";
import { type StepState, timeAfter } from "../journal/state.ts";
import { StepAttempt } from "./attempt.ts";
import type { Execution } from "./execution.ts";
import { executionLogger, Lifetime } from "./lifetime.ts";
import { type Done, done, failed, type Outcome, stopped } from "./outcome.ts";

// The values from which the expressions of a step are computed: its input, and the outputs of the steps of its workflow.

/** The input and outputs of one workflow while it runs: the workflow of the execution, or a sub-workflow. */
export interface Frame {
  readonly input: unknown;
  /** Outputs by step id. Grows while the workflow runs, so an expression for the whole object returns a copy. */
  readonly steps: Record<string, unknown>;
  /** The error that is handled, inside an `onError`. */
  readonly error?: StepError;
}

/** The input of a step, and its source in the journal. */
export interface StepInput {
  readonly data: unknown;
  readonly source: ValueSource;
}

/**
 * Runs steps one after the other. The interpreter passes this function down to the container steps, which run steps themselves, so
 * that the files do not import one another in a circle.
 */
export type RunSteps = (
  execution: Execution,
  steps: readonly Step[],
  frame: Frame,
  given: StepInput,
  lifetime: Lifetime,
) => Promise<Outcome>;

export function createFrame({ state }: Execution, input: unknown, workflow: StepsOfWorkflow): Frame {
  const steps = Object.create(null) as Frame["steps"];
  if (state.steps.size > 0) addOutputs(steps, state, listsOf(workflow));
  return { input, steps };
}

function addOutputs(outputs: Frame["steps"], state: Execution["state"], lists: Iterable<readonly Step[]>): void {
  for (const list of lists) {
    for (const step of list) {
      const known = state.steps.get(step.path);
      if (known?.status === "done" || known?.status === "skipped") outputs[step.id] = state.values.get(known.output);
      addOutputs(outputs, state, listsInside(step));
    }
  }
}

export function expressionScope(execution: Execution, frame: Frame, data: unknown): StepScope {
  const { start, state, resume } = execution.state;
  return {
    data,
    input: frame.input,
    state,
    context: start.context,
    user: start.user ?? null,
    steps: frame.steps,
    resume,
    error: frame.error,
  };
}

/** Why an expression cannot be computed. */
export class EvaluationFailure {
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
    if (thrown instanceof ExpressionError) return new EvaluationFailure(thrown.message);
    return new EvaluationFailure(messageOf(thrown));
  }
}

/** Longest pause when the manifest sets none, because exponential pauses grow quickly. */
const MAX_RETRY_DELAY_MS = 3_600_000;
/** How many entries steps without side effects leave to the next commit. */
const MAX_UNWRITTEN = 64;

/**
 * @param attempt the try that failed, from 1
 * @param key of the step in its execution: the jitter is derived from it, so that a restart does not change the pause
 */
export function retryDelay({ delay, backoff, maxDelay, jitter }: Retry, attempt: number, key: string): number {
  const wanted = backoff === "fixed" ? delay : delay * 2 ** (attempt - 1);
  const longest = Math.min(wanted, maxDelay ?? (backoff === "fixed" ? wanted : MAX_RETRY_DELAY_MS));
  return jitter ? Math.ceil(longest * (1 - fraction(`${key}:${attempt}`) / 2)) : longest;
}

/** A number from 0 to 1, derived from the text. */
const fraction = (text: string): number => createHash("sha256").update(text).digest().readUInt32BE() / 2 ** 32;

/** Milliseconds left of the pause before the next try. A restart does not shorten the pause, a resume does. */
export function pauseLeft({ state }: Execution, { retry, path }: Step): number {
  const known = state.steps.get(path);
  if (known === undefined || known.tries === 0) return 0;
  const pause = retryDelay(retry, known.tries, `${state.start.id}:${path}`);
  // A clock that was set back must not lengthen the pause.
  return Math.min(Math.max(known.triedAt + pause - storedTime(), 0), pause);
}

/** The result of one try; null when it was stopped. */
type AttemptResult = { output: unknown; text: string } | Suspend | Failure | null;

class Failure {
  readonly message: string;
  /** Whether another try may succeed. */
  readonly isTemporary: boolean;
  readonly code: string | null;
  constructor(message: string, isTemporary: boolean, code: string | null = null) {
    this.message = message;
    this.isTemporary = isTemporary;
    this.code = code;
  }
}

/**
 * Whether the manifest says that an error is not worth another try.
 *
 * @returns a message when the expression fails: then there is no further try either
 */
export function isFinalError(
  execution: Execution,
  { retry }: Step,
  frame: Frame,
  data: unknown,
  { message, code, path }: { readonly message: string; readonly code: string | null; readonly path: StepPath },
): boolean | string {
  if (retry.unless === null) return false;
  const scope = { ...expressionScope(execution, frame, data), error: { message, code, stepId: path } };
  const final = evaluate(retry.unless, scope);
  return final instanceof EvaluationFailure ? `${message}; retry.unless: ${final.message}` : final === true;
}

/** Runs the work of a step. Its `begin` entry has been appended already. */
export async function runWork(
  execution: Execution,
  step: WorkStep,
  frame: Frame,
  given: StepInput,
  lifetime: Lifetime,
): Promise<Outcome> {
  for (let attempt = (execution.state.steps.get(step.path)?.tries ?? 0) + 1; ; attempt++) {
    // The begin entry, or the failure of the last try, is on disk before the work has side effects: a restart must not repeat a try.
    const mustWrite = !step.readOnly || attempt > 1 || (execution.isContested && !execution.isRecorded);
    if (mustWrite || execution.unwritten > MAX_UNWRITTEN) await execution.flush();
    const pause = pauseLeft(execution, step);
    if (pause > 0) await lifetime.sleep(pause);
    // After a long pause, or when this process itself was paused, another one may have the execution by now.
    const { lease } = execution;
    if (lease !== null && !lease.isHeld()) await lease.confirm(lifetime.signal);
    if (lifetime.stopped !== null) return stopped(step.path);
    const own = new Lifetime(lifetime, step.timeout);
    const call = new StepAttempt(execution, step, expressionScope(execution, frame, given.data), attempt, own);
    let result: AttemptResult;
    try {
      result = await runAttempt(execution, step, call, own, lifetime);
    } finally {
      own.end();
    }
    const change = call.end();
    // The work itself has ended it.
    if (execution.ending !== null && execution.isAtRest) return done(execution.state.values.get(step.path), step.path);
    if (result === null || lifetime.isAbandoned) return stopped(step.path);
    if (result instanceof Suspend) return suspendStep(execution, step, result, change);
    if (!(result instanceof Failure)) {
      // A tap passes its input on, whatever its own output is.
      if (step.tap) return recordSame(execution, step, given.data, given.source, change);
      return recordOutput(execution, step, result.output, result.text, change);
    }
    const over = !result.isTemporary || attempt > step.retry.attempts;
    const final = over || isFinalError(execution, step, frame, given.data, { ...result, path: step.path });
    if (final !== false) {
      const message = final === true ? result.message : final;
      return step.tap ? failTap(execution, step, given, message) : failStep(execution, step, message, result.code);
    }
    execution.append(["retry", step.path, timeAfter(execution.state), attempt, result.message]);
  }
}

/** @returns null when the work was stopped, so that its result is ignored */
async function runAttempt(
  execution: Execution,
  step: WorkStep,
  call: StepAttempt,
  own: Lifetime,
  lifetime: Lifetime,
): Promise<AttemptResult> {
  try {
    const running = step.run(call);
    const result = isThenable(running) ? await waitFor(execution, step, running, own) : running;
    return result instanceof Suspend ? suspendAsJson(result) : outputAsJson(execution, step, result);
  } catch (thrown) {
    if (lifetime.stopped !== null) return null;
    // Otherwise the time limit of the try itself has stopped it.
    if (own.stopped !== null) return new Failure(`timed out after ${formatDuration(step.timeout ?? 0)}`, true);
    return toFailure(thrown);
  }
}

/** Work without side effects starts before its entry is on disk. If it takes time, the entry is written meanwhile. */
async function waitFor(
  execution: Execution,
  { readOnly, recordWithin }: WorkStep,
  work: PromiseLike<unknown>,
  own: Lifetime,
): Promise<unknown> {
  if (!readOnly) return own.wait(work);
  const write = () => void execution.flush().catch(() => {});
  const soon = recordWithin === undefined ? setImmediate(write) : null;
  const later = recordWithin === undefined ? undefined : setTimeout(write, recordWithin);
  try {
    return await own.wait(work);
  } finally {
    if (soon !== null) clearImmediate(soon);
    clearTimeout(later);
  }
}

/** The output after a round trip through JSON: the next step sees exactly what it would see after a restart. */
function outputAsJson({ known, state }: Execution, step: WorkStep, result: unknown): AttemptResult {
  let text: string;
  try {
    text = JSON.stringify(result ?? null) ?? "null";
  } catch {
    return new Failure("returned something that is not JSON", false);
  }
  if (step.tap) return { output: null, text };
  const equal = known.sourceOfEqual(text);
  const output: unknown = equal === undefined ? JSON.parse(text) : state.values.get(equal);
  const problem = step.outputCheck?.(output, "output") ?? null;
  return problem === null ? { output, text } : new Failure(problem, true);
}

function suspendAsJson({ reason, data, isChecked }: Suspend): AttemptResult {
  try {
    return new Suspend(String(reason ?? ""), data === undefined ? null : JSON.parse(JSON.stringify(data)), isChecked);
  } catch {
    return new Failure("suspended with something that is not JSON", false);
  }
}

/** Kinds of errors for which another try is pointless. */
const PERMANENT_ERRORS = new Set(["invalid_input", "not_found", "conflict"]);

function toFailure(given: unknown): Failure {
  const thrown = caught(given);
  const message = withoutSecrets(messageOf(thrown));
  if (thrown instanceof ExpressionError) return new Failure(message, false);
  const isPermanent = thrown instanceof ServiceError && PERMANENT_ERRORS.has(thrown.kind);
  return new Failure(message, !isPermanent, codeOf(thrown));
}

// Records how a step starts and ends: appends the entry, and returns the outcome that follows from it.

/** Records that a step starts, unless it was running already when an earlier process ended. */
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

/** Records a failure of the step. @param code of the error */
export function failStep(execution: Execution, step: Step, message: string, code: string | null = null): Outcome {
  const outcome = failed(step.path, message, false, code);
  recordFailure(execution, step, outcome);
  return outcome;
}

/** Records a failure. @param failure of the step, or of one inside it */
export function recordFailure(execution: Execution, { path }: Step, failure: Outcome & { kind: "failed" }): void {
  const { message, code } = failure;
  const at = timeAfter(execution.state);
  if (failure.path !== path) execution.append(["fail", path, at, message, code, failure.path]);
  else execution.append(code === null ? ["fail", path, at, message] : ["fail", path, at, message, code]);
}

/** Records an output, or a failure when the output does not match its schema. */
export function completeStep(execution: Execution, step: Step, output: unknown): Outcome {
  const problem = step.outputCheck?.(output, "output") ?? null;
  return problem === null ? recordOutput(execution, step, output) : failStep(execution, step, problem);
}

/**
 * Records an output that matches its schema; a value that is in the journal already becomes a reference.
 *
 * @param text the output as JSON, if the caller has it already
 * @param change of shared state
 */
export function recordOutput(
  execution: Execution,
  step: Step,
  output: unknown,
  text?: string,
  change?: Record<string, unknown>,
): Done {
  const { known, state } = execution;
  const same = known.sourceOf(output);
  if (same !== undefined) return recordSame(execution, step, output, same, change);
  const json = text ?? entryJson(output);
  const equal = known.sourceOfEqual(json);
  if (equal !== undefined) return recordSame(execution, step, state.values.get(equal), equal, change);
  known.add(step.path, output, json);
  const at = timeAfter(state);
  if (change === undefined)
    execution.append(["done", step.path, at, output], `["done",${JSON.stringify(step.path)},${at},${json}]`);
  else execution.append(["done", step.path, at, output, change]);
  return done(output, step.path);
}

/** Records that the output is a value which is in the journal already. */
export function recordSame(
  execution: Execution,
  step: Step,
  data: unknown,
  source: ValueSource,
  change?: Record<string, unknown>,
): Done {
  const at = timeAfter(execution.state);
  if (change === undefined) execution.append(["same", step.path, at, source]);
  else execution.append(["same", step.path, at, source, change]);
  return done(data, source);
}

/** Records that the output is a value which is in the journal already. A mismatch with the schema is returned without being recorded. */
export function passValueOn(execution: Execution, step: Step, data: unknown, source: ValueSource): Outcome {
  const problem = step.outputCheck?.(data, "output") ?? null;
  return problem === null ? recordSame(execution, step, data, source) : failed(step.path, problem);
}

/** A tap that fails is logged and passes its input on. */
export function failTap(execution: Execution, step: Step, given: StepInput, message: string): Outcome {
  failStep(execution, step, message);
  executionLogger(execution).warn({ stepId: step.path }, `andTap: ${message}`);
  return done(given.data, given.source);
}

/** Records that the step waits to be resumed. `change` is its change of shared state. */
export function suspendStep(
  execution: Execution,
  step: Step,
  { reason, data, isChecked }: Suspend,
  change?: Record<string, unknown>,
): Outcome {
  const check: ValueCheck | null = isChecked ? (step.suspendCheck ?? execution.definition.suspendCheck) : null;
  const problem = check?.(data, "suspend data") ?? null;
  if (problem !== null) return failStep(execution, step, problem);
  const at = timeAfter(execution.state);
  if (change === undefined) execution.append(["wait", step.path, at, reason, data]);
  else execution.append(["wait", step.path, at, reason, data, change]);
  return { kind: "suspended", paths: [step.path] };
}
