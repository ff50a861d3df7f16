/** Commits what belongs to an execution. While the store is away the execution waits, and whoever waits for the execution hears of it. */
import { CommitConflict, type ServiceError } from "../../lib/errors.ts";
import type { Commit, Store } from "../../storage/store.ts";
import { commitWithRetry, notRecordedYet } from "./commit-retry.ts";
import { endUnknown } from "./execution-commits.ts";
import type { Lifetime } from "./lifetime.ts";
import { executionLogger, type LoggedExecution } from "./logger.ts";

interface CommittedExecution extends LoggedExecution {
  readonly isRecorded: boolean;
  readonly lifetime: Lifetime;
}

export class WaitingCommits {
  readonly #execution: CommittedExecution;
  readonly #store: Store;
  #listeners: ((error: unknown) => void)[] = [];

  constructor(execution: CommittedExecution, store: Store) {
    this.#execution = execution;
    this.#store = store;
  }

  /** Rejects when the store cannot take a commit. */
  failure(): Promise<never> {
    return new Promise((_resolve, reject) => this.#listeners.push(reject));
  }

  /**
   * A failed first commit ends the execution. Later ones are retried until the store is back.
   *
   * @param isInDoubt whether an earlier commit may have ended the execution
   * @returns the revision of the rows
   */
  async commit(commit: Commit, isInDoubt: boolean): Promise<number> {
    const { isRecorded, lifetime } = this.#execution;
    try {
      return await this.#store.commit(commit);
    } catch (failure) {
      const again = isRecorded
        ? commitWithRetry(this.#store, commit, failure, {
            report: (error, isFirst) => this.#report(error, isFirst),
            isOver: () => lifetime.stopped?.kind === "closing",
          })
        : Promise.reject(failure);
      return await again.catch((error) => {
        const isConflict = error instanceof CommitConflict;
        // It goes on elsewhere, if it does: nothing is to be stored of its end here, and what it has asked stays asked.
        if (!isRecorded || isConflict)
          lifetime.stop({ kind: "lost", reason: "it is not recorded here", gracePeriod: 0 });
        throw isConflict && !isRecorded && isInDoubt ? endUnknown(error) : error;
      });
    }
  }

  #report(error: ServiceError, isFirst: boolean): void {
    if (isFirst)
      executionLogger(this.#execution).error(
        { err: error },
        `an execution cannot be recorded and waits: ${error.message}`,
      );
    const failure = notRecordedYet(this.#execution.state.start.id, error);
    for (const reject of this.#listeners.splice(0)) reject(failure);
  }
}
