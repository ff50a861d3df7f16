/** Commits of a turn, which succeed only while the turn has not been taken over. */
import { CommitConflict, ServiceError } from "../../lib/errors.ts";
import type { Store } from "../../storage/store.ts";
import type { TurnGuard } from "../memory.ts";
import type { Draft } from "../semantic/semantic.ts";

/** @throws ServiceError `unavailable` when the row of the guard has changed, CommitConflict when another row has */
export async function commitGuarded(store: Store, draft: Draft, guard: TurnGuard | undefined): Promise<number> {
  if (guard === undefined) return store.commit(draft);
  draft.expect.push([guard.key, guard.revision]);
  draft.delete.push(...guard.remove);
  try {
    const revision = await store.commit(draft);
    guard.committed();
    return revision;
  } catch (error) {
    if (error instanceof CommitConflict && error.keys.includes(guard.key)) throw turnLost(error);
    throw error;
  }
}

const turnLost = (cause: CommitConflict): ServiceError =>
  new ServiceError(
    "unavailable",
    "this process was silent for so long that another one has taken the conversation over",
    {
      cause,
    },
  );
