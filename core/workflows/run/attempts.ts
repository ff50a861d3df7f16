/** The work of a step: tries, their time limits, and what comes of them. */

import { storedTime } from "../../lib/clock.ts";
import { formatDuration } from "../../lib/duration.ts";
import { caught, messageOf, ServiceError } from "../../lib/errors.ts";
import { isThenable } from "../../lib/thenable.ts";
import { ExpressionError } from "../../manifest/expression.ts";
import { type Retry, type Step, Suspend, type WorkStep } from "../definition/definition.ts";
import { type StepState, timeAfter } from "../journal/state.ts";
import { WorkCall } from "./attempt.ts";
import type { Execution } from "./execution.ts";
import { type Frame, fail, passInput, type StepInput, scopeOf, suspend } from "./interpreter.ts";
import { Lifetime } from "./lifetime.ts";
import { done, type Outcome, stopped } from "./outcome.ts";

/** Milliseconds. */
const LONGEST_DELAY = 3_600_000;

/** @param attempt the try that failed, from 1 */
const retryDelay = ({ delay, backoff }: Retry, attempt: number): number =>
  backoff === "fixed" ? delay : Math.min(delay * 2 ** (attempt - 1), LONGEST_DELAY);

/** Milliseconds that are left of the pause before the next try; a restart does not cut it short, a resume does. */
export function pauseLeft({ retry }: Step, known: StepState | undefined): number {
  if (known === undefined || known.tries === 0) return 0;
  const pause = retryDelay(retry, known.tries);
  // Where the clock was set back the pause does not become longer.
  return Math.min(Math.max(known.triedAt + pause - storedTime(), 0), pause);
}

/** What one try came to. */
type Try = { output: unknown; text: string } | Suspend | Failure | null;

class Failure {
  readonly message: string;
  /** Whether another try may go better. */
  readonly passing: boolean;
  constructor(message: string, passing: boolean) {
    this.message = message;
    this.passing = passing;
  }
}

/** Runs the work of a step whose beginning has been appended. */
export async function runWork(
  execution: Execution,
  step: WorkStep,
  frame: Frame,
  given: StepInput,
  lifetime: Lifetime,
): Promise<Outcome> {
  for (let attempt = (execution.state.steps.get(step.path)?.tries ?? 0) + 1; ; attempt++) {
    // Whatever the step does, that it began is on disk, and so is that a try failed: a restart must not give it again.
    await execution.flush();
    const pause = pauseLeft(step, execution.state.steps.get(step.path));
    if (pause > 0) await lifetime.sleep(pause);
    if (lifetime.stopped !== null) return stopped(step.path);
    const own = new Lifetime(lifetime, step.timeout);
    const call = new WorkCall(execution, step, scopeOf(execution, frame, given.data), attempt, own);
    let result: Try;
    try {
      result = await once(step, call, own, lifetime);
    } finally {
      own.end();
    }
    const change = call.end();
    if (result === null || lifetime.over) return stopped(step.path);
    if (result instanceof Suspend) return suspend(execution, step, result.reason, result.data, change);
    if (!(result instanceof Failure)) {
      if (step.tap) return tapped(execution, step, given, change);
      const { output, text } = result;
      const at = timeAfter(execution.state);
      const path = JSON.stringify(step.path);
      if (change === undefined) execution.append(["done", step.path, at, output], `["done",${path},${at},${text}]`);
      else execution.append(["done", step.path, at, output, change]);
      return done(output, step.path);
    }
    if (!result.passing || attempt > step.retry.attempts)
      return step.tap ? passInput(execution, step, given, result.message) : fail(execution, step, result.message);
    execution.append(["retry", step.path, timeAfter(execution.state), attempt, result.message]);
  }
}

/** What it was given goes on, whatever it gave itself. */
function tapped(
  execution: Execution,
  step: WorkStep,
  { data, source }: StepInput,
  change: Record<string, unknown> | undefined,
): Outcome {
  const at = timeAfter(execution.state);
  if (change === undefined) execution.append(["same", step.path, at, source]);
  else execution.append(["same", step.path, at, source, change]);
  return done(data, source);
}

/** @returns null when the work was stopped: nothing came of it */
async function once(step: WorkStep, call: WorkCall, own: Lifetime, lifetime: Lifetime): Promise<Try> {
  try {
    const running = step.run(call);
    const result = isThenable(running) ? await own.wait(running) : running;
    return result instanceof Suspend ? jsonSuspend(result) : read(step, result);
  } catch (thrown) {
    if (lifetime.stopped !== null) return null;
    // Its own time limit, then.
    if (own.stopped !== null) return new Failure(`timed out after ${formatDuration(step.timeout ?? 0)}`, true);
    return failureOf(thrown);
  }
}

/** The output as JSON holds it: what the next step sees is what a restart would read. */
function read(step: WorkStep, result: unknown): Try {
  let text: string;
  try {
    text = JSON.stringify(result ?? null) ?? "null";
  } catch {
    return new Failure("returned something that is not JSON", false);
  }
  const output: unknown = JSON.parse(text);
  if (step.tap) return { output, text };
  const problem = step.outputCheck?.(output, "output") ?? null;
  return problem === null ? { output, text } : new Failure(problem, true);
}

function jsonSuspend({ reason, data }: Suspend): Try {
  try {
    return new Suspend(String(reason ?? ""), data === undefined ? null : JSON.parse(JSON.stringify(data)));
  } catch {
    return new Failure("suspended with something that is not JSON", false);
  }
}

const LASTING = new Set(["invalid_input", "not_found", "conflict"]);

function failureOf(given: unknown): Failure {
  const thrown = caught(given);
  if (thrown instanceof ExpressionError) return new Failure(thrown.message, false);
  if (thrown instanceof ServiceError) return new Failure(thrown.message, !LASTING.has(thrown.kind));
  return new Failure(messageOf(thrown), true);
}
