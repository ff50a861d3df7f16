/** A bounded map of what was used last: two generations, for a single `Map` that always gives up its oldest key gets slow. */
export class Recent<V> {
  readonly #most: number;
  #young = new Map<string, V>();
  #old = new Map<string, V>();

  /** @param most entries of a generation: that many at least are kept, and twice as many at most */
  constructor(most: number) {
    this.#most = most;
  }

  get(key: string): V | undefined {
    return this.#young.get(key) ?? this.#old.get(key);
  }

  /** The latest use too: what is read and not set again becomes old. */
  set(key: string, value: V): void {
    this.#young.set(key, value);
    if (this.#young.size < this.#most) return;
    this.#old = this.#young;
    this.#young = new Map();
  }

  delete(key: string): void {
    this.#young.delete(key);
    this.#old.delete(key);
  }
}
