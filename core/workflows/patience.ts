/** Commits of an execution that the store could not take: they are tried again until it can. */
import { CommitConflict } from "../errors.ts";
import type { Commit, Store } from "../storage/store.ts";

/** Milliseconds between two tries: the first, and the longest. */
const RETRY = { first: 100, longest: 5_000 };

interface Waiting {
  /** Told of every failure. */
  report(error: unknown, isFirst: boolean): void;
  /** Whether nobody waits any more. */
  over(): boolean;
}

/** @param failure of the try before. @throws CommitConflict, and the last failure when nobody waits any more */
export async function commitPatiently(
  store: Store,
  commit: Commit,
  failure: unknown,
  waiting: Waiting,
): Promise<number> {
  let error = failure;
  for (let delay = RETRY.first; ; delay = Math.min(delay * 2, RETRY.longest)) {
    waiting.report(error, delay === RETRY.first);
    await new Promise((resolve) => setTimeout(resolve, delay));
    if (waiting.over()) throw error;
    try {
      return await store.commit(commit);
    } catch (thrown) {
      error = thrown instanceof CommitConflict ? await conflictOr(store, commit, thrown) : thrown;
      if (typeof error === "number") return error;
      if (error instanceof CommitConflict) throw error;
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
