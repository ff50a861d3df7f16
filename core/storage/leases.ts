/**
 * Leases: rows that a process writes again and again while it works on something. When these heartbeats stop, the lease runs out, and
 * another process may take care of what was left behind. What a lease stands for (a process, a run, a task) is up to its owner.
 */
import { allRows } from "./ranges.ts";
import type { Row, Store } from "./store.ts";

/** Milliseconds. The writer's clock may be wrong, and ours shows only what has happened since we looked: each lease says which counts. */
export interface LeaseTimeout {
  /** A lease is held for so long after its heartbeat, by the clock of its writer; 0: that clock is not asked. */
  readonly sinceHeartbeat: number;
  /** A lease is held until it has not changed for so long, by our own clock, since it was first seen here. */
  readonly unchanged: number;
}

/** For a store that no other process uses: whoever held a lease is gone. */
export const NO_TIMEOUT: LeaseTimeout = { sinceHeartbeat: 0, unchanged: 0 };

interface LeaseOptions {
  /** What the keys of the leases begin with. */
  readonly prefix: string;
  /** @returns when a lease was written, in milliseconds since 1970 */
  readTime(value: string): number;
}

interface SeenLease {
  readonly revision: number;
  /** When this process first saw that revision, by `performance.now()`. */
  readonly since: number;
}

const ROWS_PER_READ = 1_000;

export class Leases {
  readonly #store: Store;
  readonly #options: LeaseOptions;
  #seen: ReadonlyMap<string, SeenLease> = new Map();

  constructor(store: Store, options: LeaseOptions) {
    this.#store = store;
    this.#options = options;
  }

  /** The keys of all leases that the last complete reading found. */
  get keys(): ReadonlySet<string> {
    return new Set(this.#seen.keys());
  }

  /** Reads all leases, and gives those that have run out. */
  async *expired({ sinceHeartbeat, unchanged }: LeaseTimeout): AsyncGenerator<Row, void> {
    const seen = new Map<string, SeenLease>();
    const now = performance.now();
    const oldest = Date.now() - sinceHeartbeat;
    for await (const rows of allRows(this.#store, { prefix: this.#options.prefix }, ROWS_PER_READ)) {
      for (const row of rows) {
        const before = this.#seen.get(row.key);
        const lease = before?.revision === row.revision ? before : { revision: row.revision, since: now };
        seen.set(row.key, lease);
        const isSilent = sinceHeartbeat === 0 || this.#options.readTime(row.value) < oldest;
        if (isSilent && now - lease.since >= unchanged) yield row;
      }
    }
    this.#seen = seen;
  }
}

/** Says when the next heartbeat of leases is due that are written together with other rows. */
export class HeartbeatTimer {
  readonly #interval: number;
  #last = Number.NEGATIVE_INFINITY;

  /** @param interval milliseconds between two heartbeats */
  constructor(interval: number) {
    this.#interval = interval;
  }

  /** Counts from now: there is nothing to keep alive, or it has just been written. */
  restart(): void {
    this.#last = performance.now();
  }

  /** Whether the interval is over. If so, the next one begins. */
  isDue(): boolean {
    if (performance.now() - this.#last < this.#interval) return false;
    this.restart();
    return true;
  }
}
