/**
 * A circuit breaker for one model, shared by all chains that contain it: after some consecutive failures the model is not called for a
 * while, so that requests need not wait for it. Then one trial call is admitted, which decides.
 */
import type { CircuitState } from "../observability/metrics/outcomes.ts";
import type { ModelFailure } from "./failure.ts";

/** Consecutive failures that open the circuit. */
const THRESHOLD = 5;
/**
 * The circuit stays closed when more calls than these have succeeded at about the same time: of two thousand calls a second of which
 * some fail by chance, five fail in a row every few minutes, and then ten seconds without the model would do more harm.
 */
const WINDOW_MS = 1_000;
/** How long the circuit stays open before the trial call. */
const OPEN_MS = 10_000;

export class Circuit {
  readonly #changed: (state: CircuitState) => void;
  #state: CircuitState = "closed";
  /** Consecutive failures. */
  #failures = 0;
  /** Successes since `#windowStart`, the time of a failure: the clock is read only at failures. */
  #successes = 0;
  #windowStart = Number.NEGATIVE_INFINITY;
  #openedAt = 0;

  /** @param changed called with every new state */
  constructor(changed: (state: CircuitState) => void) {
    this.#changed = changed;
  }

  get isClosed(): boolean {
    return this.#state === "closed";
  }

  /** Whether the model may be called now. Once the trial is due, true for a single call. */
  admits(): boolean {
    if (this.#state === "closed") return true;
    if (this.#state === "trial" || this.waits() > 0) return false;
    this.#change("trial");
    return true;
  }

  /** Milliseconds until the next trial; 0 while one is in progress. */
  waits(): number {
    return this.#state === "open" ? Math.max(0, this.#openedAt + OPEN_MS - performance.now()) : 0;
  }

  /** The answer has started, which ends a trial. It does not reset the failures, because a model may break off every answer. */
  began(): void {
    if (this.#state !== "trial") return;
    this.#failures = THRESHOLD - 1;
    this.#change("closed");
  }

  succeeded(): void {
    this.#failures = 0;
    this.#successes++;
    if (this.#state !== "closed") this.#change("closed");
  }

  failed({ shows }: Pick<ModelFailure, "shows">): void {
    if (shows === "present") this.succeeded();
    if (shows === "nothing") this.abandoned();
    if (shows !== "absent") return;
    this.#failures++;
    if (this.#state === "open") return;
    const now = performance.now();
    if (now - this.#windowStart > WINDOW_MS) {
      this.#windowStart = now;
      this.#successes = 0;
    }
    if (this.#failures < THRESHOLD || this.#successes > this.#failures) return;
    this.#openedAt = now;
    this.#change("open");
  }

  /** The call was given up before it showed anything: if it was the trial, the next call becomes the trial. */
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
