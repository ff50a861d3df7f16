/** Commits what belongs to an execution. While the store is away the execution waits, and whoever waits for the execution hears of it. */
import { CommitConflict, ServiceError, unavailable } from "../../lib/errors.ts";
import { isStoreUnavailable, whileAway } from "../../storage/away.ts";
import type { Commit, Store } from "../../storage/store.ts";
import { endUnknown } from "./execution-rows.ts";
import { executionLogger, type Lifetime, type LoggedExecution } from "./lifetime.ts";

// Retries the commit of an execution until an unavailable store is back.

/** The commit fails in a way that another try would not help. The message is for clients. */
export class UnrecordableError extends Error {
  override readonly name = "Unrecordable";

  constructor(cause: unknown) {
    const why = cause instanceof ServiceError ? cause.message : "the store refuses its data";
    super(`the execution cannot be recorded: ${why}`, { cause });
  }
}

/** The error for clients while an execution waits until it can be recorded. */
const notRecordedYet = (id: string, { message }: ServiceError): ServiceError =>
  unavailable(message, 1, { executionId: id });

/**
 * @param failure of the first try
 * @throws CommitConflict; UnrecordableError when another try would not help; the last failure once it `isOver`
 */
async function commitWithRetry(
  store: Store,
  commit: Commit,
  failure: unknown,
  options: Parameters<typeof whileAway>[2],
): Promise<number> {
  const again = () => store.commit(commit).catch((error) => revisionUnlessLost(store, commit, error));
  try {
    return await whileAway(failure, again, options);
  } catch (error) {
    throw error instanceof CommitConflict || isStoreUnavailable(error) ? error : new UnrecordableError(error);
  }
}

/**
 * When the connection is lost during a commit, the commit may have happened all the same: then its second try conflicts with the first.
 *
 * @returns the revision of the first try when it did happen
 * @throws the error of the second, else
 */
async function revisionUnlessLost(store: Store, { put }: Commit, error: unknown): Promise<number> {
  const [key, value] = put![0]!;
  const row = error instanceof CommitConflict ? await store.get(key) : undefined;
  if (row?.value === value) return row.revision;
  throw error;
}

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

  /** Calls it, once, when the store cannot take a commit. */
  onFailure(listener: (error: unknown) => void): void {
    this.#listeners.push(listener);
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
    for (const tell of this.#listeners.splice(0)) tell(failure);
  }
}
