/** What the expressions of a step are computed from: its input, and what the steps of its workflow have given. */
import { messageOf } from "../../lib/errors.ts";
import { ExpressionError } from "../../manifest/expression.ts";
import type { Step, StepScope } from "../definition/definition.ts";
import type { StepPath, ValueSource } from "../journal/entries.ts";
import type { Execution } from "./execution.ts";
import type { Lifetime } from "./lifetime.ts";
import type { Outcome } from "./outcome.ts";

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

/**
 * Runs steps one after the other. The interpreter hands its own down to the container steps, which run steps in their turn: so no
 * file needs to import the one that imports it.
 */
export type RunSteps = (
  execution: Execution,
  steps: readonly Step[],
  frame: Frame,
  given: StepInput,
  lifetime: Lifetime,
) => Promise<Outcome>;

/** @param prefix of the paths of its steps: empty, or the path of the sub-workflow step and `/` */
export function createFrame({ state }: Execution, input: unknown, prefix: StepPath): Frame {
  const steps = Object.create(null) as Record<string, unknown>;
  for (const { path, status, output } of state.steps.values()) {
    if ((status !== "done" && status !== "skipped") || !path.startsWith(prefix)) continue;
    const id = path.slice(prefix.length);
    if (!id.includes("/")) steps[id] = state.values.get(output);
  }
  return { input, steps };
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
  };
}

/** An expression that cannot be computed. */
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
