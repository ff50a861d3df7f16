/** Detects whether a write under the same key overlapped with a read, so that the result of the read may be out of date. */

interface Active {
  /** Number of reads and writes in progress. */
  users: number;
  writers: number;
  /** Number of starts and ends of writes so far. */
  writes: number;
}

export class Overlaps<K> {
  /** Entries only for keys that are being read or written. */
  readonly #active = new Map<K, Active>();

  isWritten(key: K): boolean {
    return (this.#active.get(key)?.writers ?? 0) > 0;
  }

  beginWrite(key: K): void {
    const active = this.#enter(key);
    active.writers++;
    active.writes++;
  }

  endWrite(key: K): void {
    const active = this.#active.get(key)!;
    active.writers--;
    active.writes++;
    this.#leave(key, active);
  }

  /** `alone` tells that no write was in progress at any time during the read. */
  async read<T>(key: K, read: () => Promise<T>): Promise<{ result: T; alone: boolean }> {
    const active = this.#enter(key);
    const { writers, writes } = active;
    try {
      const result = await read();
      return { result, alone: writers === 0 && active.writes === writes };
    } finally {
      this.#leave(key, active);
    }
  }

  #enter(key: K): Active {
    let active = this.#active.get(key);
    if (active === undefined) {
      active = { users: 0, writers: 0, writes: 0 };
      this.#active.set(key, active);
    }
    active.users++;
    return active;
  }

  #leave(key: K, active: Active): void {
    active.users--;
    if (active.users === 0) this.#active.delete(key);
  }
}
