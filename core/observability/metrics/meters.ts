/**
 * All counters of a service. The code that does the work increments them directly; `/metrics` reads them on request.
 * Nothing here knows labels or the text format.
 */
import { Durations, SampledDurations } from "./durations.ts";

// Counts how often each of a few outcomes occurred.

export class Tally<K extends string> {
  readonly outcomes: readonly K[];
  /** Counts in the order of `outcomes`. Doubles are exact up to 2^53, and never boxed. */
  readonly #counts: Float64Array;

  constructor(outcomes: readonly K[]) {
    this.outcomes = outcomes;
    this.#counts = new Float64Array(outcomes.length);
  }

  count(outcome: K, times = 1): void {
    this.#counts[this.outcomes.indexOf(outcome)]! += times;
  }

  /** Counts an outcome by its index. */
  countAt(place: number): void {
    this.#counts[place]!++;
  }

  of(outcome: K): number {
    return this.#counts[this.outcomes.indexOf(outcome)]!;
  }
}

// The meters of a model, a tool and a workflow, and collections of meters by name.

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
const RUN_OUTCOMES = ["completed", "error", "cancelled"] as const;
export type RunOutcome = (typeof RUN_OUTCOMES)[number];

const TOOL_OUTCOMES = ["ok", "failed", "timed out", "invalid input", "not approved", "aborted"] as const;

/** Outcomes of an execution, whenever it stops running. */
const EXECUTION_OUTCOMES = ["completed", "error", "cancelled", "suspended"] as const;

/** Outcomes of attempts: `failed` is the last attempt of a step, `retried` each one before it. */
const STEP_OUTCOMES = ["done", "failed", "retried", "suspended"] as const;
export type StepOutcome = (typeof STEP_OUTCOMES)[number];

const COMMIT_OUTCOMES = ["ok", "conflict", "error"] as const;

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

// Counts, for each limit of the manifest by its path, how often it has refused something, and how much of it is in use.

/** Limits that refuse what exceeds them. `body` is a single size, or has one for each class of routes. */
const REFUSING = [
  "server.limits.body",
  "server.limits.body.default",
  "server.limits.body.generation",
  "server.limits.uploads",
  "server.limits.executions",
  "server.limits.userExecutions",
  "server.limits.execution",
  "server.limits.stored",
  "server.limits.userTasks",
  "server.limits.approvals",
  "server.limits.request",
  "server.limits.stall",
  "server.limits.connections",
  "server.limits.socketMessage",
] as const;

export type RefusingLimit = (typeof REFUSING)[number];

/** Called by the part of the service that refuses. */
export type CountRefusal = (limit: RefusingLimit) => void;

export class LimitMeters {
  readonly #refused = new Map<string, number>(REFUSING.map((limit) => [limit, 0]));
  readonly #used = new Map<string, () => number>();

  readonly count: CountRefusal = (limit) => {
    this.#refused.set(limit, this.#refused.get(limit)! + 1);
  };

  /** Sets the function that returns how much is in use, in the unit of the limit. After a reload, the new part sets it again. */
  measure(limit: string, read: () => number): void {
    this.#used.set(limit, read);
  }

  /** Undefined for a limit that refuses nothing, such as a delay, or a size to which something is cut. */
  refused(limit: string): number | undefined {
    return this.#refused.get(limit);
  }

  /** Undefined when it is unknown. */
  used(limit: string): number | undefined {
    return this.#used.get(limit)?.();
  }
}

// Counts the requests of one route. Runs for every request, so it only changes numbers in place.

/** Outcomes by the first digit of the status; `aborted` when the client left before the reply. */
const STATUSES = ["aborted", "1xx", "2xx", "3xx", "4xx", "5xx"] as const;

/** The status that stands for a request whose client has left. */
const CLIENT_CLOSED_REQUEST = 499;

export class RequestMeter {
  readonly operation: string;
  /** Template of the path: `/agents/:id`. */
  readonly route: string;
  readonly method: string;
  readonly statuses = new Tally(STATUSES);
  readonly durations = new SampledDurations();

  constructor(operation: string, route: string, method: string) {
    this.operation = operation;
    this.route = route;
    this.method = method;
  }

  /**
   * @param milliseconds the duration, or `UNTIMED`
   * @param waited whether the reply was asynchronous
   */
  finished(status: number, milliseconds: number, waited: boolean): void {
    this.statuses.countAt(status === CLIENT_CLOSED_REQUEST ? 0 : Math.trunc(status / 100));
    this.durations.ended(milliseconds, waited);
  }
}

/** Methods that are counted under their own name in requests that no route matches. */
const METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

/** A number that is read with every scrape. */
interface Reading {
  /** The name without the prefix `penstock_`: `sockets_open`. */
  readonly name: string;
  readonly help: string;
  readonly type: "counter" | "gauge";
  read(): number;
}

/** Names from the manifest. */
export interface MeterNames {
  /** `provider/model` */
  readonly models: Iterable<string>;
  readonly agents: Iterable<string>;
  readonly tools: Iterable<string>;
  readonly workflows: Iterable<string>;
}

interface MeteredRoute {
  readonly operation: string;
  readonly path: string;
  readonly method: string;
}

export class Meters {
  readonly models: NamedMeters<ModelMeter>;
  /** Outcomes of runs by agent id. */
  readonly agents: NamedMeters<Tally<RunOutcome>>;
  readonly tools: NamedMeters<ToolMeter>;
  readonly workflows: NamedMeters<WorkflowMeter>;
  readonly commits = new Tally(COMMIT_OUTCOMES);
  readonly limits = new LimitMeters();
  /** Durations of successful commits. */
  readonly commitDurations = new Durations();
  /** Meters by method, path and operation. */
  readonly #routes = new Map<string, RequestMeter>();
  readonly #unmatched = new Map<string, RequestMeter>();
  readonly #preflight = new RequestMeter("preflight", "preflight", "OPTIONS");
  readonly #readings: Reading[] = [];
  /** The final values of counters whose part of the service has ended, by name. */
  readonly #ended = new Map<string, Reading>();

  constructor(names: MeterNames) {
    this.models = new NamedMeters(() => new ModelMeter());
    this.agents = new NamedMeters(() => new Tally(RUN_OUTCOMES));
    this.tools = new NamedMeters(() => new ToolMeter());
    this.workflows = new NamedMeters(() => new WorkflowMeter());
    this.declare(names);
    for (const method of [...METHODS, OTHER])
      this.#unmatched.set(method, new RequestMeter("unknown", "unknown", method));
  }

  /** Declares names; those that were known already keep their counts. */
  declare({ models, agents, tools, workflows }: MeterNames): void {
    this.models.declare(models);
    this.agents.declare(agents);
    this.tools.declare(tools);
    this.workflows.declare(workflows);
  }

  /** The meter of a route, which is kept when the route is compiled again. HEAD counts as GET. */
  ofRoute({ operation, path, method }: MeteredRoute): RequestMeter {
    const key = `${method} ${path} ${operation}`;
    let meter = this.#routes.get(key);
    if (meter === undefined) {
      meter = new RequestMeter(operation, path, method);
      this.#routes.set(key, meter);
    }
    return meter;
  }

  /** The meter of requests that no route matches: 404 and 405. */
  ofUnmatched(method: string): RequestMeter {
    return this.#unmatched.get(method) ?? this.#unmatched.get(OTHER)!;
  }

  get ofPreflight(): RequestMeter {
    return this.#preflight;
  }

  get routes(): readonly RequestMeter[] {
    return [...this.#routes.values()];
  }

  /** The meters of requests that no route matches, and of preflight requests. */
  get others(): readonly RequestMeter[] {
    return [...this.#unmatched.values(), this.#preflight];
  }

  /**
   * Adds a number that another part of the service maintains; numbers with the same name are summed. Returns a function that removes it
   * when that part ends. The final value of a counter is kept.
   */
  add(reading: Reading): () => void {
    this.#readings.push(reading);
    return () => {
      const place = this.#readings.indexOf(reading);
      if (place === -1) return;
      this.#readings.splice(place, 1);
      if (reading.type === "gauge") return;
      const { name, help, type } = reading;
      const sum = (this.#ended.get(name)?.read() ?? 0) + reading.read();
      this.#ended.set(name, { name, help, type, read: () => sum });
    };
  }

  /** One reading per name. */
  get readings(): readonly Reading[] {
    return [...new Map(this.#all().map((reading) => [reading.name, reading])).values()].map(({ name, help, type }) => ({
      name,
      help,
      type,
      read: () =>
        this.#all()
          .filter((reading) => reading.name === name)
          .reduce((sum, { read }) => sum + read(), 0),
    }));
  }

  #all(): readonly Reading[] {
    return this.#ended.size === 0 ? this.#readings : [...this.#readings, ...this.#ended.values()];
  }
}
