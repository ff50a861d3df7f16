/** Bounds how many tasks of one user are open at once: at work, or waiting for an answer. */
import { ServiceError } from "../lib/errors.ts";
import type { TaskRows } from "./task-rows.ts";

export class OpenTasks {
  readonly #rows: TaskRows;
  readonly #limit: () => number;
  /** To be called for a task that `claim` has refused: one that repeats an earlier one is answered nevertheless. */
  readonly refused: (() => void) | undefined;
  /** Tasks that are about to begin here, by user: they are not in the store yet. */
  readonly #beginning = new Map<string, number>();

  /** @param limit read for every task */
  constructor(rows: TaskRows, limit: () => number, refused?: () => void) {
    this.refused = refused;
    this.#rows = rows;
    this.#limit = limit;
  }

  /** @param user empty for none: those are bounded together with all others. @throws ServiceError `rate_limited` when the user has too many open tasks */
  async claim<T>(user: string, begin: () => Promise<T>): Promise<T> {
    const limit = this.#limit();
    if (user === "" || limit === Number.POSITIVE_INFINITY) return begin();
    this.#add(user, 1);
    try {
      // Counted before the first await, so that of many that begin at once none is overlooked.
      if (this.#beginning.get(user)! > limit) throw tooMany(limit);
      if ((await this.#rows.countOpen(user, limit)) + this.#beginning.get(user)! > limit) throw tooMany(limit);
      return await begin();
    } finally {
      this.#add(user, -1);
    }
  }

  #add(user: string, count: number): void {
    const sum = (this.#beginning.get(user) ?? 0) + count;
    if (sum === 0) this.#beginning.delete(user);
    else this.#beginning.set(user, sum);
  }
}

const tooMany = (limit: number) =>
  new ServiceError("rate_limited", `the user has ${limit} open tasks already: wait until one has ended, or cancel one`);
