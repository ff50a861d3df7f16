/** Finds out which rows have not changed for a while, as far as the reader itself has seen: no clock but its own is asked. */
import type { Row } from "./store.ts";

interface SeenRow {
  readonly revision: number;
  /** When it was first seen with that revision, in milliseconds of the reader's own clock. */
  readonly since: number;
}

/** Readings further apart than this share of the time that counts say nothing about what happened in between. */
const GAP_SHARE = 1 / 3;

/**
 * Rows that are silent: they were read again and again, and have not changed for `timeout` milliseconds. A gap between two readings
 * begins the count anew, for all rows: when the store could not be read, nobody could write to it either.
 */
export class Silence {
  readonly #timeout: number;
  #seen: ReadonlyMap<string, SeenRow> = new Map();
  #last = Number.NEGATIVE_INFINITY;

  constructor(timeout: number) {
    this.#timeout = timeout;
  }

  /**
   * @param rows as they were read just now
   * @param now of a clock that no one sets, in milliseconds
   * @returns those that are silent
   */
  after(rows: readonly Row[], now: number): Row[] {
    const before = now - this.#last > this.#timeout * GAP_SHARE ? new Map<string, SeenRow>() : this.#seen;
    const seen = new Map<string, SeenRow>();
    const silent: Row[] = [];
    for (const row of rows) {
      const known = before.get(row.key);
      const since = known?.revision === row.revision ? known.since : now;
      seen.set(row.key, { revision: row.revision, since });
      if (now - since >= this.#timeout) silent.push(row);
    }
    this.#seen = seen;
    this.#last = now;
    return silent;
  }
}
