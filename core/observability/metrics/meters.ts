/**
 * Everything that is counted while the service runs. It is counted in place, by whoever does the work, and read when somebody
 * asks for `/metrics`: nothing here knows of labels, texts or clients.
 */
import { Durations } from "./durations.ts";
import { ModelMeter, NamedMeters, OTHER, ToolMeter, WorkflowMeter } from "./named.ts";
import { COMMIT_OUTCOMES, RUN_OUTCOMES, type RunOutcome } from "./outcomes.ts";
import { RequestMeter } from "./request-meter.ts";
import { Tally } from "./tally.ts";

/** Methods that have a name of their own where no route answers. */
const METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

/** One number that is read when it is asked for. */
export interface Reading {
  /** `sockets_open`: what follows `penstock_`. */
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
  /** By id. */
  readonly agents: NamedMeters<Tally<RunOutcome>>;
  readonly tools: NamedMeters<ToolMeter>;
  readonly workflows: NamedMeters<WorkflowMeter>;
  readonly commits = new Tally(COMMIT_OUTCOMES);
  /** Of commits that went well. */
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

  /** Of what no route answers: 404 and 405. */
  ofUnmatched(method: string): RequestMeter {
    return this.#unmatched.get(method) ?? this.#unmatched.get(OTHER)!;
  }

  get ofPreflight(): RequestMeter {
    return this.#preflight;
  }

  get routes(): readonly RequestMeter[] {
    return this.#routes;
  }

  /** Those of what no route answers. */
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
