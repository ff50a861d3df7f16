/**
 * All counters of a service. The code that does the work counts in place; `/metrics` reads the counters when it is requested.
 * Nothing here knows labels or the text format.
 */
import { Durations } from "./durations.ts";
import { ModelMeter, NamedMeters, OTHER, ToolMeter, WorkflowMeter } from "./named.ts";
import { COMMIT_OUTCOMES, RUN_OUTCOMES, type RunOutcome } from "./outcomes.ts";
import { RequestMeter } from "./request-meter.ts";
import { Tally } from "./tally.ts";

/** For requests that no route matches: methods that are counted under their own name. */
const METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

/** A number that is read with every scrape. */
interface Reading {
  /** Without the prefix `penstock_`: `sockets_open`. */
  readonly name: string;
  readonly help: string;
  readonly type: "counter" | "gauge";
  read(): number;
}

/** Names from the manifest. */
interface MeterNames {
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
  /** By id. */
  readonly agents: NamedMeters<Tally<RunOutcome>>;
  readonly tools: NamedMeters<ToolMeter>;
  readonly workflows: NamedMeters<WorkflowMeter>;
  readonly commits = new Tally(COMMIT_OUTCOMES);
  /** Of successful commits. */
  readonly commitDurations = new Durations();
  readonly #routes: RequestMeter[] = [];
  readonly #unmatched = new Map<string, RequestMeter>();
  readonly #preflight = new RequestMeter("preflight", "preflight", "OPTIONS");
  readonly #readings: Reading[] = [];

  constructor({ models, agents, tools, workflows }: MeterNames) {
    this.models = new NamedMeters(() => new ModelMeter(), models);
    this.agents = new NamedMeters(() => new Tally(RUN_OUTCOMES), agents);
    this.tools = new NamedMeters(() => new ToolMeter(), tools);
    this.workflows = new NamedMeters(() => new WorkflowMeter(), workflows);
    for (const method of [...METHODS, OTHER])
      this.#unmatched.set(method, new RequestMeter("unknown", "unknown", method));
  }

  /** Called once for each route. HEAD counts with its GET. */
  ofRoute({ operation, path, method }: MeteredRoute): RequestMeter {
    const meter = new RequestMeter(operation, path, method);
    this.#routes.push(meter);
    return meter;
  }

  /** For requests that no route matches: 404 and 405. */
  ofUnmatched(method: string): RequestMeter {
    return this.#unmatched.get(method) ?? this.#unmatched.get(OTHER)!;
  }

  get ofPreflight(): RequestMeter {
    return this.#preflight;
  }

  get routes(): readonly RequestMeter[] {
    return this.#routes;
  }

  /** The meters of requests that no route matches, and of preflight requests. */
  get others(): readonly RequestMeter[] {
    return [...this.#unmatched.values(), this.#preflight];
  }

  /** Adds a number that another part of the service keeps. */
  add(reading: Reading): void {
    this.#readings.push(reading);
  }

  get readings(): readonly Reading[] {
    return this.#readings;
  }
}
