/** Records how a step starts and ends: appends the entry, and returns the outcome that follows from it. */
import type { Step, Suspend, ValueCheck } from "../definition/definition.ts";
import type { ValueSource } from "../journal/entries.ts";
import { entryJson } from "../journal/outcome-text.ts";
import { type StepState, timeAfter } from "../journal/state.ts";
import type { Execution } from "./execution.ts";
import { executionLogger } from "./logger.ts";
import { type Done, done, failed, type Outcome } from "./outcome.ts";
import type { StepInput } from "./scope.ts";

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
