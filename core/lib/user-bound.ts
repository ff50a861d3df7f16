/** Limits how many things of one user are open at once, also of those that begin at the same moment. */
import { rateLimited } from "./errors.ts";
import { KeyCounts } from "./key-counts.ts";

interface UserBoundOptions {
  /** How many are open in the store, counted up to a number. */
  count(user: string, most: number): Promise<number>;
  /** Called for every one that begins. */
  limit(): number;
  /** What is refused, for the error. */
  tooMany(limit: number): string;
}

export class UserBound {
  readonly #options: UserBoundOptions;
  /** Number of those that are about to begin here, by user: they are not in the store yet. */
  readonly #beginning = new KeyCounts();

  constructor(options: UserBoundOptions) {
    this.#options = options;
  }

  /** @param user empty for none: then there is no limit. @throws ServiceError `rate_limited` for too many */
  async claim<T>(user: string, begin: () => Promise<T>): Promise<T> {
    const limit = this.#options.limit();
    if (user === "" || limit === Number.POSITIVE_INFINITY) return begin();
    try {
      // Counted before the first await, so that simultaneous starts are all counted.
      const isFull = this.#beginning.add(user, 1) > limit;
      if (isFull || (await this.#options.count(user, limit)) + this.#beginning.of(user) > limit)
        throw rateLimited(this.#options.tooMany(limit));
      return await begin();
    } finally {
      this.#beginning.add(user, -1);
    }
  }
}
