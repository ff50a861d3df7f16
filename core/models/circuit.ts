/**
 * A circuit breaker for one model, shared by all chains that have it: after some failures in a row the model is not called for a
 * while, so that requests are spared the wait. Then one call is let through, and decides.
 */
import type { CircuitState } from "../observability/metrics/outcomes.ts";
import type { FailureReason } from "./failure.ts";

/** Failures in a row that open it. */
const THRESHOLD = 5;
/** From then on until the trial call. */
const OPEN_MS = 10_000;

/** Failures of the model. All others are answers to a request that it does not take: they show that it is there. */
const OF_THE_MODEL: ReadonlySet<FailureReason> = new Set(["timed out", "unavailable", "overloaded"]);

export class Circuit {
  readonly #changed: (state: CircuitState) => void;
  #state: CircuitState = "closed";
  /** In a row. */
  #failures = 0;
  #openedAt = 0;

  /** @param changed is told every new state */
  constructor(changed: (state: CircuitState) => void) {
    this.#changed = changed;
  }

  get isClosed(): boolean {
    return this.#state === "closed";
  }

  /** Whether the model may be called now. True for one call alone once the trial is due. */
  admits(): boolean {
    if (this.#state === "closed") return true;
    if (this.#state === "trial" || this.waits() > 0) return false;
    this.#change("trial");
    return true;
  }

  /** Milliseconds until the next trial; 0 while one is under way. */
  waits(): number {
    return this.#state === "open" ? Math.max(0, this.#openedAt + OPEN_MS - performance.now()) : 0;
  }

  /** The answer has begun. What counts as failures in a row goes on: models may break off every answer. */
  began(): void {
    if (this.#state !== "trial") return;
    this.#failures = THRESHOLD - 1;
    this.#change("closed");
  }

  succeeded(): void {
    this.#failures = 0;
    if (this.#state !== "closed") this.#change("closed");
  }

  failed(reason: FailureReason): void {
    if (reason === "queue full") {
      // The model was not asked.
      this.abandoned();
      return;
    }
    if (!OF_THE_MODEL.has(reason)) {
      this.succeeded();
      return;
    }
    this.#failures++;
    if (this.#state === "open" || this.#failures < THRESHOLD) return;
    this.#openedAt = performance.now();
    this.#change("open");
  }

  /** The call was given up before it showed anything: if it was the trial, the next call is. */
  abandoned(): void {
    if (this.#state !== "trial") return;
    this.#openedAt = performance.now() - OPEN_MS;
    this.#change("open");
  }

  #change(state: CircuitState): void {
    this.#state = state;
    this.#changed(state);
  }
}
