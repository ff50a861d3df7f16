/** Counts how often each of a few outcomes occurred. */
export class Tally<K extends string> {
  readonly outcomes: readonly K[];
  /** In the order of `outcomes`. Doubles: exact up to 2^53, and never boxed. */
  readonly #counts: Float64Array;

  constructor(outcomes: readonly K[]) {
    this.outcomes = outcomes;
    this.#counts = new Float64Array(outcomes.length);
  }

  count(outcome: K, times = 1): void {
    this.#counts[this.outcomes.indexOf(outcome)]! += times;
  }

  /** The same, by the place of the outcome. */
  countAt(place: number): void {
    this.#counts[place]!++;
  }

  of(outcome: K): number {
    return this.#counts[this.outcomes.indexOf(outcome)]!;
  }
}
