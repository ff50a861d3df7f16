/** The time limits of one model call, which is aborted when one of them is exceeded, or with its run. */
import { type AbortListener, AbortSource, type Aborts } from "../lib/aborts.ts";
import { ModelTimeout, type ModelTimeouts } from "../plugin/plugin.ts";

/**
 * Parts that do not belong to the answer yet: providers send them at once, before the model thinks. Until another part comes, `firstByte`
 * applies and not `idle`, so that a model may think for a minute before its first word.
 */
const BEFORE_THE_ANSWER: ReadonlySet<string> = new Set([
  "stream-start",
  "response-metadata",
  "raw",
  "reasoning-start",
  "text-start",
]);

type Phase = "firstByte" | "idle";

export class CallLimits extends AbortSource implements AbortListener {
  readonly #timeouts: ModelTimeouts | undefined;
  readonly #run: Aborts | undefined;
  #phase: Phase = "firstByte";
  /** The start of the current phase; null while the model waits for the reader. */
  #since: number | null = 0;
  /** The start of the answer, for `total`. */
  #answerSince = Number.POSITIVE_INFINITY;
  #timer: NodeJS.Timeout | undefined;
  /** When that fires. */
  #due = Number.POSITIVE_INFINITY;
  #ended = false;

  /** @param run aborts when the run does; @param timeouts undefined when only the run ends the call */
  constructor(timeouts: ModelTimeouts | undefined, run: Aborts | undefined) {
    super();
    this.#timeouts = timeouts;
    this.#run = run;
    run?.add(this);
    this.restart();
    this.#watch();
  }

  /** Called when the run is aborted. */
  aborted(reason: unknown): void {
    this.abort(reason);
  }

  /** @param atOnce whether it came in the same moment as the one before */
  received(type: string, atOnce: boolean): void {
    if (this.#timeouts === undefined) return;
    if (this.#phase === "firstByte" && !BEFORE_THE_ANSWER.has(type)) {
      this.#phase = "idle";
      this.#answerSince = performance.now();
      this.#since = this.#answerSince;
      this.#watch();
    } else if (this.#phase === "idle" && !atOnce) this.restart();
  }

  /** Restarts the limit of the current phase: the model has shown activity. */
  restart(): void {
    if (this.#timeouts !== undefined) this.#since = performance.now();
  }

  /** Pauses the limit of the current phase until the next `restart`. */
  pause(): void {
    this.#since = null;
  }

  /** Ends the time limits, because the model enforces them itself. The run still ends the call. */
  untime(): void {
    this.#ended = true;
    clearTimeout(this.#timer);
  }

  end(): void {
    this.untime();
    this.#run?.remove(this);
  }

  /** One timer for all limits, set for the next one. Activity in between only moves `#since`, which costs no timer. */
  #watch(): void {
    const limits = this.#timeouts;
    if (limits === undefined || this.#ended) return;
    const now = performance.now();
    const phase = (this.#since ?? now) + limits[this.#phase] - now;
    const total = this.#answerSince + (limits.total ?? Number.POSITIVE_INFINITY) - now;
    const left = Math.min(phase, total);
    if (left > 0) {
      // The timer that is set looks again before, and early enough for the limits of an answer that begins now.
      const next = Math.min(left, limits.idle, limits.total ?? left);
      if (now + next >= this.#due) return;
      clearTimeout(this.#timer);
      this.#due = now + next;
      this.#timer = setTimeout(() => {
        this.#due = Number.POSITIVE_INFINITY;
        this.#watch();
      }, Math.ceil(next));
      return;
    }
    const limit = total <= phase ? "total" : this.#phase;
    this.abort(new ModelTimeout(limit, limits[limit] ?? 0));
  }
}
