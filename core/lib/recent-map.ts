/** A bounded map of the entries that were used last. It has two generations: to delete the oldest key of one large `Map` is slow. */
export class RecentMap<V> {
  readonly #capacity: number;
  #current = new Map<string, V>();
  #previous = new Map<string, V>();

  /** @param capacity entries of a generation: at least as many are kept, and at most twice as many */
  constructor(capacity: number) {
    this.#capacity = capacity;
  }

  get(key: string): V | undefined {
    return this.#current.get(key) ?? this.#previous.get(key);
  }

  /** Marks the entry as used: one that is only read, and not set again, is dropped in time. */
  set(key: string, value: V): void {
    this.#current.set(key, value);
    if (this.#current.size < this.#capacity) return;
    this.#previous = this.#current;
    this.#current = new Map();
  }

  delete(key: string): void {
    this.#current.delete(key);
    this.#previous.delete(key);
  }
}
