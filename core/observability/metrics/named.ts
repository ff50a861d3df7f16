/** The meters of a model, a tool and a workflow, and collections of meters by name. */
import { SampledDurations } from "./durations.ts";
import { Tally } from "./tally.ts";

// The outcomes that metrics use as labels. The lists are closed: no text of a client, a model or a tool becomes a label.

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

const TOOL_OUTCOMES = ["ok", "failed", "timed out", "invalid input", "not approved", "aborted"] as const;

/** Outcomes of an execution, whenever it stops running. */
const EXECUTION_OUTCOMES = ["completed", "error", "cancelled", "suspended"] as const;

/** Outcomes of attempts: `failed` is the last attempt of a step, `retried` each one before it. */
const STEP_OUTCOMES = ["done", "failed", "retried", "suspended"] as const;
export type StepOutcome = (typeof STEP_OUTCOMES)[number];

export const COMMIT_OUTCOMES = ["ok", "conflict", "error"] as const;

/** The label for everything that the manifest does not name. */
export const OTHER = "other";

export class ModelMeter {
  readonly calls = new Tally(MODEL_OUTCOMES);
  /** From the call to the end of the answer, for successful calls. */
  readonly durations = new SampledDurations();
  /** The state of its circuit breaker. */
  circuit: CircuitState = "closed";
  inputTokens = 0;
  outputTokens = 0;
  /** In US dollars; undefined for a model without prices. */
  cost: number | undefined;

  used(usage: { promptTokens: number; completionTokens: number; cost?: number }): void {
    this.inputTokens += usage.promptTokens;
    this.outputTokens += usage.completionTokens;
    if (usage.cost !== undefined) this.cost = (this.cost ?? 0) + usage.cost;
  }
}

export class ToolMeter {
  readonly calls = new Tally(TOOL_OUTCOMES);
}

export class WorkflowMeter {
  readonly executions = new Tally(EXECUTION_OUTCOMES);
  /** Number of executions that run in this process. */
  running = 0;
  /** Outcomes of steps by path. */
  readonly steps: NamedMeters<Tally<StepOutcome>> = new NamedMeters(() => new Tally(STEP_OUTCOMES));
}

/** Meters by names that are known at boot; all other names share one, so that no request creates a new series. */
export class NamedMeters<M> {
  readonly #known = new Map<string, M>();
  readonly #create: () => M;
  #other: M | null = null;

  constructor(create: () => M, names: Iterable<string> = []) {
    this.#create = create;
    this.declare(names);
  }

  declare(names: Iterable<string>): void {
    for (const name of names) if (!this.#known.has(name)) this.#known.set(name, this.#create());
  }

  of(name: string): M {
    const known = this.#known.get(name);
    if (known !== undefined) return known;
    this.#other ??= this.#create();
    return this.#other;
  }

  /** The known names in the order of their declaration, and `other` once something was counted there. */
  get entries(): [name: string, meter: M][] {
    const known = [...this.#known];
    return this.#other === null ? known : [...known, [OTHER, this.#other]];
  }
}
