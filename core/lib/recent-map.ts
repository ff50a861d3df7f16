/** A bounded map of the most recently used entries. It has two generations, because deleting the oldest key of one large `Map` is slow. */
export class RecentMap<V, K = string> {
  readonly #capacity: number;
  readonly #weigh: (value: V, key: K) => number;
  #current = new Map<K, V>();
  #previous = new Map<K, V>();
  /** Weight of the entries in `#current`. */
  #weight = 0;

  /**
   * @param capacity the weight of a generation: the map keeps entries of at least this weight, and of at most twice as much
   * @param weigh default: each entry weighs 1
   */
  constructor(capacity: number, weigh: (value: V, key: K) => number = () => 1) {
    this.#capacity = capacity;
    this.#weigh = weigh;
  }

  get(key: K): V | undefined {
    return this.#current.get(key) ?? this.#previous.get(key);
  }

  /** Sets an entry and marks it as used: one that is only read, and not set again, is dropped eventually. */
  set(key: K, value: V): void {
    const known = this.#current.get(key);
    this.#weight += this.#weigh(value, key) - (known === undefined ? 0 : this.#weigh(known, key));
    this.#current.set(key, value);
    if (this.#weight < this.#capacity) return;
    this.#previous = this.#current;
    this.#current = new Map();
    this.#weight = 0;
  }

  delete(key: K): void {
    const known = this.#current.get(key);
    if (known !== undefined) this.#weight -= this.#weigh(known, key);
    this.#current.delete(key);
    this.#previous.delete(key);
  }
}
