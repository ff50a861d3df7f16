/** Small requests that copy much: those of one user take turns, so that together they take no more than one of them. */
import { rateLimited } from "./errors.ts";
import { KeyCounts } from "./key-counts.ts";
import { createKeyedMutex } from "./keyed-mutex.ts";

/** Copies of one user that may be at work or wait. */
const MAX_OF_USER = 256;

export class Copies {
  readonly #turns = createKeyedMutex<string>();
  readonly #counts = new KeyCounts();

  /**
   * Waits for the turn of a copy, which ends with the call of the result.
   *
   * @throws ServiceError `rate_limited` when too many of this user wait
   */
  async enter(user: string): Promise<() => void> {
    if (this.#counts.of(user) === MAX_OF_USER)
      throw rateLimited(`${MAX_OF_USER} copies of this user are being made: try again when some are done`);
    this.#counts.add(user, 1);
    return new Promise((enter) => {
      const turn = () => new Promise<void>((leave) => enter(leave));
      void this.#turns.run([user], turn).then(() => this.#counts.add(user, -1));
    });
  }
}
