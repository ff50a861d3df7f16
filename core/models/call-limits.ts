/** The time limits of one call of a model, and the signal that ends it: when one has passed, or when the run is aborted. */
import { ModelTimeout, type ModelTimeouts } from "../plugin/plugin.ts";

/**
 * Parts that do not begin the answer: providers send them at once, and then think. Until another part comes, `firstByte` applies
 * and not `idle`, so that a model may think for a minute before its first word.
 */
const BEFORE_THE_ANSWER: ReadonlySet<string> = new Set([
  "stream-start",
  "response-metadata",
  "raw",
  "reasoning-start",
  "text-start",
]);

type Phase = "firstByte" | "idle";

export class CallLimits {
  readonly #timeouts: ModelTimeouts | undefined;
  readonly #run: AbortSignal | undefined;
  readonly #controller = new AbortController();
  #phase: Phase = "firstByte";
  /** When the limit of the phase began to run; null while the reader is what is waited for. */
  #since: number | null = 0;
  /** When the answer began, for `total`. */
  #answerSince = Number.POSITIVE_INFINITY;
  #timer: NodeJS.Timeout | undefined;
  #ended = false;

  /** @param run aborts when the run does; @param timeouts none: only the run ends the call */
  constructor(timeouts: ModelTimeouts | undefined, run: AbortSignal | undefined) {
    this.#timeouts = timeouts;
    this.#run = run;
    if (run?.aborted) this.#controller.abort(run.reason);
    else run?.addEventListener("abort", this.#runAborted, { once: true });
    this.restart();
    this.#watch();
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  received(type: string): void {
    if (this.#timeouts === undefined) return;
    if (this.#phase === "firstByte" && !BEFORE_THE_ANSWER.has(type)) {
      this.#phase = "idle";
      this.#answerSince = performance.now();
      this.#since = this.#answerSince;
      clearTimeout(this.#timer);
      this.#watch();
    } else if (this.#phase === "idle") this.restart();
  }

  /** A sign of life: the limit of the phase begins anew. */
  restart(): void {
    if (this.#timeouts !== undefined) this.#since = performance.now();
  }

  /** It does not run until the next `restart`. */
  pause(): void {
    this.#since = null;
  }

  /** From now on only the run ends the call: the model keeps to its limits itself. */
  untime(): void {
    this.#ended = true;
    clearTimeout(this.#timer);
  }

  end(): void {
    this.untime();
    this.#run?.removeEventListener("abort", this.#runAborted);
  }

  /** One timer for all limits, set for the next one. What comes in between only moves `#since`, which costs no timer. */
  readonly #watch = (): void => {
    const limits = this.#timeouts;
    if (limits === undefined || this.#ended) return;
    const now = performance.now();
    const phase = (this.#since ?? now) + limits[this.#phase] - now;
    const total = this.#answerSince + (limits.total ?? Number.POSITIVE_INFINITY) - now;
    const left = Math.min(phase, total);
    if (left > 0) {
      this.#timer = setTimeout(this.#watch, Math.ceil(left));
      return;
    }
    const limit = total <= phase ? "total" : this.#phase;
    this.#controller.abort(new ModelTimeout(limit, limits[limit] ?? 0));
  };

  readonly #runAborted = (): void => this.#controller.abort(this.#run?.reason);
}
