/** Records how a step begins and how it comes out: appends the entry, and returns the outcome that follows from it. */
import type { Step, Suspend, ValueCheck } from "../definition/definition.ts";
import type { ValueSource } from "../journal/entries.ts";
import { type StepState, timeAfter } from "../journal/state.ts";
import type { Execution } from "./execution.ts";
import { executionLogger } from "./logger.ts";
import { done, failed, type Outcome } from "./outcome.ts";
import type { StepInput } from "./scope.ts";

/** Records that a step begins, unless it was running already when an earlier process ended. */
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

export function failStep(execution: Execution, step: Step, message: string): Outcome {
  execution.append(["fail", step.path, timeAfter(execution.state), message]);
  return failed(step.path, message);
}

/** Records an output, or a failure when the output does not fit its schema. */
export function completeStep(execution: Execution, step: Step, output: unknown): Outcome {
  const problem = step.outputCheck?.(output, "output") ?? null;
  if (problem !== null) return failStep(execution, step, problem);
  execution.append(["done", step.path, timeAfter(execution.state), output]);
  return done(output, step.path);
}

/** Records that the output is a value which is in the journal already. A failure to fit the schema is returned without being recorded. */
export function passValueOn(execution: Execution, step: Step, data: unknown, source: ValueSource): Outcome {
  const problem = step.outputCheck?.(data, "output") ?? null;
  if (problem !== null) return failed(step.path, problem);
  execution.append(["same", step.path, timeAfter(execution.state), source]);
  return done(data, source);
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
