/** Answers with delays between their parts, to try out streaming, aborts and slow models offline. */
import type { LanguageModelV3StreamPart, PartBatch, PartSource } from "../../plugin/plugin.ts";

export interface Pace {
  /** Milliseconds between two deltas. */
  delay: number;
  /** Milliseconds before the first delta. */
  firstDelay: number;
}

/**
 * Returns one group after the other: the first is due `firstDelay` after the call, each next one `delay` later. All times are
 * measured from the call, so that late timers do not add up; groups that became due while the reader was busy come as one
 * batch. `failure` is thrown after the last group.
 */
export class PacedParts implements PartSource {
  readonly #groups: readonly LanguageModelV3StreamPart[][];
  readonly #failure: Error | undefined;
  readonly #pace: Pace;
  readonly #signal: AbortSignal | undefined;
  readonly #start = performance.now();
  #index = 0;
  #cancelled = false;
  #listening = false;
  /** Ends the pause of a pending `next`. */
  #wake: (() => void) | undefined;

  constructor(groups: LanguageModelV3StreamPart[][], failure: Error | undefined, pace: Pace, signal?: AbortSignal) {
    this.#groups = groups;
    this.#failure = failure;
    this.#pace = pace;
    this.#signal = signal;
  }

  next(): PartBatch | null | Promise<PartBatch | null> {
    if (this.#cancelled) return null;
    if (this.#signal?.aborted) throw this.#signal.reason;
    if (this.#index >= this.#groups.length) {
      this.#unlisten();
      if (this.#failure !== undefined) throw this.#failure;
      return null;
    }
    const pause = this.#dueIn(this.#index);
    return pause <= 0 ? this.#takeDue() : this.#waitFor(pause);
  }

  cancel(): void {
    this.#cancelled = true;
    this.#unlisten();
    this.#wake?.();
  }

  #dueIn(index: number): number {
    return this.#start + this.#pace.firstDelay + index * this.#pace.delay - performance.now();
  }

  #takeDue(): PartBatch {
    const batch: LanguageModelV3StreamPart[] = [];
    do {
      batch.push(...(this.#groups[this.#index++] ?? []));
      // A timer may be early by less than a millisecond.
    } while (this.#index < this.#groups.length && this.#dueIn(this.#index) < 1);
    return batch;
  }

  #waitFor(pause: number): Promise<PartBatch | null> {
    if (!this.#listening) {
      this.#listening = true;
      this.#signal?.addEventListener("abort", this.#aborted, { once: true });
    }
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => this.#wake?.(), pause);
      this.#wake = () => {
        clearTimeout(timer);
        this.#wake = undefined;
        if (this.#cancelled) resolve(null);
        else if (this.#signal?.aborted) reject(this.#signal.reason);
        else resolve(this.#takeDue());
      };
    });
  }

  readonly #aborted = () => {
    this.#listening = false;
    this.#wake?.();
  };

  #unlisten(): void {
    if (!this.#listening) return;
    this.#listening = false;
    this.#signal?.removeEventListener("abort", this.#aborted);
  }
}
