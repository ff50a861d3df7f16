/** Limits how many tasks of one user are open at once: in progress, or waiting for an answer. */
import { ServiceError } from "../lib/errors.ts";
import { KeyCounts } from "../lib/key-counts.ts";
import type { TaskRows } from "./task-rows.ts";

export class OpenTasks {
  readonly #rows: TaskRows;
  readonly #limit: () => number;
  /** Must be called for a task that `claim` has refused, unless it repeats an earlier one, which is answered nevertheless. */
  readonly refused: (() => void) | undefined;
  /** Number of tasks that are about to start here, by user: they are not in the store yet. */
  readonly #beginning = new KeyCounts();

  /** @param limit called for every task */
  constructor(rows: TaskRows, limit: () => number, refused?: () => void) {
    this.refused = refused;
    this.#rows = rows;
    this.#limit = limit;
  }

  /** @param user empty for none: then all such tasks share the limit. @throws ServiceError `rate_limited` for too many open tasks */
  async claim<T>(user: string, begin: () => Promise<T>): Promise<T> {
    const limit = this.#limit();
    if (user === "" || limit === Number.POSITIVE_INFINITY) return begin();
    try {
      // Counted before the first await, so that simultaneous starts are all counted.
      if (this.#beginning.add(user, 1) > limit) throw tooMany(limit);
      if ((await this.#rows.countOpen(user, limit)) + this.#beginning.of(user) > limit) throw tooMany(limit);
      return await begin();
    } finally {
      this.#beginning.add(user, -1);
    }
  }
}

const tooMany = (limit: number) =>
  new ServiceError("rate_limited", `the user has ${limit} open tasks already: wait until one has ended, or cancel one`);
