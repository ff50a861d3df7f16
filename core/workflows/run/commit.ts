/** Commits of an execution that the store could not take: they are tried again until it can. */
import { CommitConflict, ServiceError } from "../../lib/errors.ts";
import type { Commit, Store } from "../../storage/store.ts";

/** Milliseconds between two tries: the first, and the longest. */
const RETRY = { first: 100, longest: 5_000 };

/** Whether the store cannot be used at present. Whatever else it says, it will say again. */
export const isStoreUnavailable = (error: unknown): error is ServiceError =>
  error instanceof ServiceError && error.kind === "unavailable";

/** A commit that no other try can mend. The message is for clients. */
export class UnrecordableError extends Error {
  override readonly name = "Unrecordable";

  constructor(cause: unknown) {
    const why = cause instanceof ServiceError ? cause.message : "the store refuses what it holds";
    super(`the execution cannot be recorded: ${why}`, { cause });
  }
}

/** What clients are told of an execution that waits until it can be recorded. */
export const notRecordedYet = (id: string, { message }: ServiceError): ServiceError =>
  new ServiceError("unavailable", message, { headers: { "x-execution-id": id, "retry-after": "1" } });

interface Waiting {
  /** Told of every failure. */
  report(error: ServiceError, isFirst: boolean): void;
  /** Whether nobody waits any more. */
  over(): boolean;
}

/**
 * @param failure of the try before
 * @throws CommitConflict; Unrecordable, when another try cannot mend it; the last failure when nobody waits any more
 */
export async function commitWithRetry(
  store: Store,
  commit: Commit,
  failure: unknown,
  waiting: Waiting,
): Promise<number> {
  let error = failure;
  for (let delay = RETRY.first; ; delay = Math.min(delay * 2, RETRY.longest)) {
    if (error instanceof CommitConflict) throw error;
    if (!isStoreUnavailable(error)) throw new UnrecordableError(error);
    waiting.report(error, delay === RETRY.first);
    await new Promise((resolve) => setTimeout(resolve, delay));
    if (waiting.over()) throw error;
    try {
      return await store.commit(commit);
    } catch (thrown) {
      error = thrown instanceof CommitConflict ? await conflictOr(store, commit, thrown) : thrown;
      if (typeof error === "number") return error;
    }
  }
}

/** A commit that failed for a lost connection may have happened: then it is in the way of itself. Gives its revision. */
async function conflictOr(store: Store, { put }: Commit, conflict: CommitConflict): Promise<number | unknown> {
  const [key, value] = put![0]!;
  try {
    const row = await store.get(key);
    return row?.value === value ? row.revision : conflict;
  } catch (error) {
    return error;
  }
}
