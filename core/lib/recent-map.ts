/** A bounded map of what was used last: two generations, for a single `Map` that always gives up its oldest key gets slow. */
export class RecentMap<V> {
  readonly #capacity: number;
  #current = new Map<string, V>();
  #previous = new Map<string, V>();

  /** @param most entries of a generation: that many at least are kept, and twice as many at most */
  constructor(most: number) {
    this.#capacity = most;
  }

  get(key: string): V | undefined {
    return this.#current.get(key) ?? this.#previous.get(key);
  }

  /** The latest use too: what is read and not set again becomes old. */
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
