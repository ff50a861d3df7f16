/** Records how a step begins and how it comes out, each as an entry of the journal and as the outcome that follows from it. */
import type { Step, ValueCheck } from "../definition/definition.ts";
import type { ValueSource } from "../journal/entries.ts";
import { type StepState, timeAfter } from "../journal/state.ts";
import type { Execution } from "./execution.ts";
import { executionLogger } from "./logger.ts";
import { done, failed, type Outcome } from "./outcome.ts";
import type { StepInput } from "./scope.ts";

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

export function failStep(execution: Execution, step: Step, message: string): Outcome {
  execution.append(["fail", step.path, timeAfter(execution.state), message]);
  return failed(step.path, message);
}

/** @returns what the step gives, recorded; a failure when it does not fit */
export function completeStep(execution: Execution, step: Step, output: unknown): Outcome {
  const problem = step.outputCheck?.(output, "output") ?? null;
  if (problem !== null) return failStep(execution, step, problem);
  execution.append(["done", step.path, timeAfter(execution.state), output]);
  return done(output, step.path);
}

/** @returns what the step passes on, which is on record already; a failure, not recorded yet, when it does not fit */
export function passValueOn(execution: Execution, step: Step, data: unknown, source: ValueSource): Outcome {
  const problem = step.outputCheck?.(data, "output") ?? null;
  if (problem !== null) return failed(step.path, problem);
  execution.append(["same", step.path, timeAfter(execution.state), source]);
  return done(data, source);
}

/** A tap that failed changes nothing; the log has it. */
export function failTap(execution: Execution, step: Step, given: StepInput, message: string): Outcome {
  failStep(execution, step, message);
  executionLogger(execution).warn({ stepId: step.path }, `andTap: ${message}`);
  return done(given.data, given.source);
}

/** @param change of shared state */
export function suspendStep(
  execution: Execution,
  step: Step,
  reason: string,
  data: unknown,
  change?: Record<string, unknown>,
): Outcome {
  const check: ValueCheck | null = step.suspendCheck ?? execution.definition.suspendCheck;
  const problem = check?.(data, "suspend data") ?? null;
  if (problem !== null) return failStep(execution, step, problem);
  const at = timeAfter(execution.state);
  if (change === undefined) execution.append(["wait", step.path, at, reason, data]);
  else execution.append(["wait", step.path, at, reason, data, change]);
  return { kind: "suspended", paths: [step.path] };
}
