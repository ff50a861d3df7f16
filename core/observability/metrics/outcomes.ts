/** The outcomes that metrics use as labels. The lists are closed: no text of a client, a model or a tool becomes a label. */

/** Outcomes of one attempt with one model. */
export const MODEL_OUTCOMES = [
  "ok",
  "rate limited",
  "overloaded",
  "queue full",
  "timed out",
  "unavailable",
  "context_length",
  "refused the request",
  "refused to answer",
  "not recorded",
  "aborted",
] as const;
export type ModelOutcome = (typeof MODEL_OUTCOMES)[number];

/** States of a model's circuit breaker, in the order of the numbers in the metric. */
export const CIRCUIT_STATES = ["closed", "trial", "open"] as const;
export type CircuitState = (typeof CIRCUIT_STATES)[number];

/** Outcomes of an agent's run, as in its history. */
export const RUN_OUTCOMES = ["completed", "error", "cancelled"] as const;
export type RunOutcome = (typeof RUN_OUTCOMES)[number];

export const TOOL_OUTCOMES = ["ok", "failed", "timed out", "invalid input", "not approved", "aborted"] as const;

/** Outcomes of an execution, whenever it stops running. */
export const EXECUTION_OUTCOMES = ["completed", "error", "cancelled", "suspended"] as const;

/** Outcomes of attempts: `failed` is the last attempt of a step, `retried` each one before it. */
export const STEP_OUTCOMES = ["done", "failed", "retried", "suspended"] as const;
export type StepOutcome = (typeof STEP_OUTCOMES)[number];

export const COMMIT_OUTCOMES = ["ok", "conflict", "error"] as const;
