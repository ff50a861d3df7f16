/** The values from which the expressions of a step are computed: its input, and the outputs of the steps of its workflow. */
import { messageOf } from "../../lib/errors.ts";
import { ExpressionError } from "../../manifest/expression.ts";
import {
  listsInside,
  listsOf,
  type Step,
  type StepError,
  type StepScope,
  type StepsOfWorkflow,
} from "../definition/definition.ts";
import type { ValueSource } from "../journal/entries.ts";
import type { Execution } from "./execution.ts";
import type { Lifetime } from "./lifetime.ts";
import type { Outcome } from "./outcome.ts";

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
  const outputs = Object.create(null) as Record<string, unknown>;
  const visit = (list: readonly Step[]): void => {
    for (const step of list) {
      const known = state.steps.get(step.path);
      if (known?.status === "done" || known?.status === "skipped") outputs[step.id] = state.values.get(known.output);
      for (const inner of listsInside(step)) visit(inner);
    }
  };
  for (const list of listsOf(workflow)) visit(list);
  return { input, steps: outputs };
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
