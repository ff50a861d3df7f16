/** What to do where it does not matter which of several processes was first. */
import { CommitConflict } from "../lib/errors.ts";
import type { Row, Store } from "./store.ts";

/** Resolves to false when another process has changed the rows before: it has done the same, or what was to be done is out of date. */
export async function unlessConflict(commit: Promise<unknown>): Promise<boolean> {
  try {
    await commit;
    return true;
  } catch (error) {
    if (error instanceof CommitConflict) return false;
    throw error;
  }
}

/** Removes a row, unless it has changed since it was read. */
export const removeUnchanged = (store: Store, { key, revision }: Row): Promise<boolean> =>
  unlessConflict(store.commit({ delete: [key], expect: [[key, revision]] }));
