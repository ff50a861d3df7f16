/** The circuit breakers of all models of a service, by `provider/model`. */
import type { Logger } from "pino";
import { RecentMap } from "../lib/recent-map.ts";
import type { ModelMeter, NamedMeters } from "../observability/metrics/named.ts";
import type { CircuitState } from "../observability/metrics/outcomes.ts";
import { Circuit } from "./circuit.ts";

/** Requests may compute names of models: only those that were used last are kept. */
const MAX_CIRCUITS = 1024;

const MESSAGES: Record<CircuitState, string> = {
  open: "model circuit open: it failed too often, and is not called until its next trial",
  trial: "model circuit on trial: one call decides",
  closed: "model circuit closed: it answers again",
};

export class Circuits {
  readonly #circuits = new RecentMap<Circuit>(MAX_CIRCUITS);
  readonly #logger: Pick<Logger, "info" | "warn">;
  readonly #meters: NamedMeters<ModelMeter>;

  constructor(logger: Pick<Logger, "info" | "warn">, meters: NamedMeters<ModelMeter>) {
    this.#logger = logger;
    this.#meters = meters;
  }

  of(model: string): Circuit {
    const circuit = this.#circuits.get(model) ?? this.#create(model);
    this.#circuits.set(model, circuit);
    return circuit;
  }

  /** Resets the meter, which may still show the state of a circuit from before a reload. */
  #create(model: string): Circuit {
    this.#meters.of(model).circuit = "closed";
    return new Circuit((state) => this.#changed(model, state));
  }

  #changed(model: string, state: CircuitState): void {
    this.#meters.of(model).circuit = state;
    this.#logger[state === "open" ? "warn" : "info"]({ model, circuit: state }, MESSAGES[state]);
  }
}
