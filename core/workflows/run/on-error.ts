/**
 * `onError`: steps that run when a step, or a step of a workflow, has finally failed. Their progress is recorded like any other: a
 * failed step is not run again, so a walk after a restart reaches the same error, and from there the steps that handle it.
 */
import type { Step, StepsOfWorkflow } from "../definition/definition.ts";
import type { Execution } from "./execution.ts";
import type { Lifetime } from "./lifetime.ts";
import { bailed, type Outcome, stopped } from "./outcome.ts";
import type { Frame, RunSteps, StepInput } from "./scope.ts";
import { failStep, passValueOn } from "./step-entries.ts";

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
export async function runWorkflow(
  runSteps: RunSteps,
  execution: Execution,
  prefix: string,
  { steps, onError }: StepsOfWorkflow,
  frame: Frame,
  given: StepInput,
  lifetime: Lifetime,
): Promise<Outcome> {
  const { values, bailed: ended } = execution.state;
  const source = ended.get(prefix);
  if (source !== undefined) return bailed(values.get(source), source);
  const outcome = await runSteps(execution, steps, frame, given, lifetime);
  if (outcome.kind !== "failed" || onError === null || lifetime.isAbandoned) return outcome;
  return runSteps(execution, onError, handling(frame, outcome), given, lifetime);
}
