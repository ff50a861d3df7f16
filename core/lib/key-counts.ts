/** Counts by key. A key whose count is 0 takes no memory. */
export class KeyCounts {
  readonly #counts = new Map<string, number>();

  of(key: string): number {
    return this.#counts.get(key) ?? 0;
  }

  /** Returns the new count. */
  add(key: string, change: number): number {
    const count = this.of(key) + change;
    if (count === 0) this.#counts.delete(key);
    else this.#counts.set(key, count);
    return count;
  }

  keys(): string[] {
    return [...this.#counts.keys()];
  }
}
