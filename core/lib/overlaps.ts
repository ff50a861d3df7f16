/** Tells a read whether something was written under its key while it ran, so that its result may be out of date already. */

interface Active {
  /** Reads and writes under way. */
  users: number;
  writers: number;
  /** Begins and ends of writes. */
  writes: number;
}

export class Overlaps {
  /** Only the keys that are being read or written. */
  readonly #active = new Map<string, Active>();

  isWritten(key: string): boolean {
    return (this.#active.get(key)?.writers ?? 0) > 0;
  }

  beginWrite(key: string): void {
    const active = this.#enter(key);
    active.writers++;
    active.writes++;
  }

  endWrite(key: string): void {
    const active = this.#active.get(key)!;
    active.writers--;
    active.writes++;
    this.#leave(key, active);
  }

  /** `alone`: no write was under way at any time of the read. */
  async read<T>(key: string, read: () => Promise<T>): Promise<{ result: T; alone: boolean }> {
    const active = this.#enter(key);
    const { writers, writes } = active;
    try {
      const result = await read();
      return { result, alone: writers === 0 && active.writes === writes };
    } finally {
      this.#leave(key, active);
    }
  }

  #enter(key: string): Active {
    let active = this.#active.get(key);
    if (active === undefined) {
      active = { users: 0, writers: 0, writes: 0 };
      this.#active.set(key, active);
    }
    active.users++;
    return active;
  }

  #leave(key: string, active: Active): void {
    active.users--;
    if (active.users === 0) this.#active.delete(key);
  }
}
