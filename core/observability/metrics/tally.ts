/** Counts how often each of a few outcomes occurred. */
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
