/** Changes of one part that happen in the commit of another, so that both happen or neither does. Neither knows the rows of the other. */
import { CommitConflict } from "../lib/errors.ts";
import type { Commit, Store } from "./store.ts";

export interface JoinedChanges {
  readonly changes: Commit;
  /** Called once they are on disk. */
  committed(revision: number): void;
  /**
   * What to throw when a row that they expect has changed. Nothing has happened then, and another try would not help: so it is not a
   * CommitConflict, which the other part would try again.
   */
  lost(conflict: CommitConflict): Error;
}

const LISTS = ["put", "delete", "clear", "add", "expect", "of"] as const;

/** A commit that more is added to. */
export type OpenCommit = { readonly [K in (typeof LISTS)[number]]: NonNullable<Commit[K]>[number][] } & {
  begun?: Commit["begun"];
};

/**
 * Commits changes with those that joined them, which are added to them.
 *
 * @throws what `lost` gives for changes that cannot happen any more; CommitConflict when only rows of `own` have changed
 */
export async function commitJoined(
  store: Store,
  own: OpenCommit,
  joined: readonly JoinedChanges[] = [],
): Promise<number> {
  for (const { changes } of joined) for (const list of LISTS) (own[list] as unknown[]).push(...(changes[list] ?? []));
  let revision: number;
  try {
    revision = await store.commit(own);
  } catch (error) {
    if (!(error instanceof CommitConflict)) throw error;
    const { keys } = error;
    const loser = joined.find(({ changes: { expect = [] } }) => expect.some(([key]) => keys.includes(key)));
    throw loser === undefined ? error : loser.lost(error);
  }
  for (const each of joined) each.committed(revision);
  return revision;
}
