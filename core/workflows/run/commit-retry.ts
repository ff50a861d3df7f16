/** Retries the commit of an execution until an unavailable store is back. */
import { CommitConflict, ServiceError, unavailable } from "../../lib/errors.ts";
import { isStoreUnavailable, whileAway } from "../../storage/away.ts";
import type { Commit, Store } from "../../storage/store.ts";

/** The commit fails in a way that another try would not help. The message is for clients. */
export class UnrecordableError extends Error {
  override readonly name = "Unrecordable";

  constructor(cause: unknown) {
    const why = cause instanceof ServiceError ? cause.message : "the store refuses its data";
    super(`the execution cannot be recorded: ${why}`, { cause });
  }
}

/** The error for clients while an execution waits until it can be recorded. */
export const notRecordedYet = (id: string, { message }: ServiceError): ServiceError =>
  unavailable(message, 1, { executionId: id });

/**
 * @param failure of the first try
 * @throws CommitConflict; UnrecordableError when another try would not help; the last failure once it `isOver`
 */
export async function commitWithRetry(
  store: Store,
  commit: Commit,
  failure: unknown,
  options: Parameters<typeof whileAway>[1],
): Promise<number> {
  const again = () => store.commit(commit).catch((error) => revisionUnlessLost(store, commit, error));
  try {
    return await whileAway(again, options, failure);
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
