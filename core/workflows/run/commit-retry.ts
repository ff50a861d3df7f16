/** Retries the commit of an execution until an unavailable store is back. */
import { CommitConflict, ServiceError } from "../../lib/errors.ts";
import type { Commit, Store } from "../../storage/store.ts";

/** The pause doubles with each try. */
const FIRST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 5_000;

/** Whether the store is temporarily unavailable. Any other error would occur again with the next try. */
export const isStoreUnavailable = (error: unknown): error is ServiceError =>
  error instanceof ServiceError && error.kind === "unavailable";

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
  new ServiceError("unavailable", message, { headers: { "x-execution-id": id, "retry-after": "1" } });

interface RetryOptions {
  /** Called with every failure. */
  report(error: ServiceError, isFirst: boolean): void;
  /** Whether to stop trying. */
  isOver(): boolean;
}

/**
 * @param failure of the first try
 * @throws CommitConflict; UnrecordableError when another try would not help; the last failure once `isOver`
 */
export async function commitWithRetry(
  store: Store,
  commit: Commit,
  failure: unknown,
  options: RetryOptions,
): Promise<number> {
  let error = failure;
  for (let delay = FIRST_PAUSE_MS; ; delay = Math.min(delay * 2, LONGEST_PAUSE_MS)) {
    if (error instanceof CommitConflict) throw error;
    if (!isStoreUnavailable(error)) throw new UnrecordableError(error);
    options.report(error, delay === FIRST_PAUSE_MS);
    await new Promise((resolve) => setTimeout(resolve, delay));
    if (options.isOver()) throw error;
    try {
      return await store.commit(commit);
    } catch (thrown) {
      error = thrown instanceof CommitConflict ? await revisionOrError(store, commit, thrown) : thrown;
      if (typeof error === "number") return error;
    }
  }
}

/**
 * When the connection is lost during a commit, the commit may have happened all the same: then its second try conflicts with the first.
 *
 * @returns the revision of the first try when it did happen, else the error
 */
async function revisionOrError(store: Store, { put }: Commit, conflict: CommitConflict): Promise<number | unknown> {
  const [key, value] = put![0]!;
  try {
    const row = await store.get(key);
    return row?.value === value ? row.revision : conflict;
  } catch (error) {
    return error;
  }
}
