/**
 * A circuit breaker for one model, shared by all chains that contain it: after some consecutive failures the model is not called for a
 * while, so that requests need not wait for it. Then one trial call is admitted, which decides.
 */
import type { CircuitState } from "../observability/metrics/meters.ts";
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

export type Circuit = ReturnType<typeof createCircuit>;

/** @param changed called with every new state */
export function createCircuit(changed: (state: CircuitState) => void) {
  let current: CircuitState = "closed";
  /** Consecutive failures. */
  let failures = 0;
  /** Successes since `#windowStart`, the time of a failure: the clock is read only at failures. */
  let successes = 0;
  let windowStart = Number.NEGATIVE_INFINITY;
  let openedAt = 0;

  /** Whether the model may be called now. Once the trial is due, true for a single call. */
  function admits(): boolean {
    if (current === "closed") return true;
    if (current === "trial" || waits() > 0) return false;
    change("trial");
    return true;
  }

  /** Milliseconds until the next trial; 0 while one is in progress. */
  function waits(): number {
    return current === "open" ? Math.max(0, openedAt + OPEN_MS - performance.now()) : 0;
  }

  /** The answer has started, which ends a trial. It does not reset the failures, because a model may break off every answer. */
  function began(): void {
    if (current !== "trial") return;
    failures = THRESHOLD - 1;
    change("closed");
  }

  function succeeded(): void {
    failures = 0;
    successes++;
    if (current !== "closed") change("closed");
  }

  function failed({ shows }: Pick<ModelFailure, "shows">): void {
    if (shows === "present") succeeded();
    if (shows === "nothing") abandoned();
    if (shows !== "absent") return;
    failures++;
    if (current === "open") return;
    const now = performance.now();
    if (now - windowStart > WINDOW_MS) {
      windowStart = now;
      successes = 0;
    }
    if (failures < THRESHOLD || successes > failures) return;
    openedAt = now;
    change("open");
  }

  /** The call was given up before it showed anything: if it was the trial, the next call becomes the trial. */
  function abandoned(): void {
    if (current !== "trial") return;
    openedAt = performance.now() - OPEN_MS;
    change("open");
  }

  function change(state: CircuitState): void {
    current = state;
    changed(state);
  }

  return {
    get isClosed(): boolean {
      return current === "closed";
    },
    admits,
    waits,
    began,
    succeeded,
    failed,
    abandoned,
  };
}
