/** What to do where it does not matter which of several processes was first. */
import { CommitConflict, unavailable } from "../lib/errors.ts";
import type { Row, Store } from "./store.ts";

/** Resolves to false when another process has changed the rows before: it has done the same, or what was to be done is out of date. */
export const unlessConflict = async (commit: Promise<unknown>): Promise<boolean> =>
  (await nullOnConflict(commit)) !== null;

/** Resolves like the commit, or to null when another process has changed the rows before. */
export async function nullOnConflict<T>(commit: Promise<T>): Promise<T | null> {
  try {
    return await commit;
  } catch (error) {
    if (error instanceof CommitConflict) return null;
    throw error;
  }
}

/** How often a change is repeated after conflicts with other processes. */
const MAX_TRIES = 20;

/**
 * Reads and changes something until no other process changes it in between.
 *
 * @param what it is, for the error
 * @param change undefined to be repeated
 * @throws ServiceError `unavailable` when others change it all the time
 */
export async function changeInTurn<T>(what: string, change: () => Promise<T | undefined>): Promise<T> {
  for (let tries = 0; tries < MAX_TRIES; tries++) {
    try {
      const changed = await change();
      if (changed !== undefined) return changed;
    } catch (error) {
      if (!(error instanceof CommitConflict)) throw error;
    }
  }
  throw unavailable(`${what} is being changed all the time: try again`);
}

/** Removes a row, unless it has changed since it was read. */
export const removeUnchanged = (store: Store, { key, revision }: Pick<Row, "key" | "revision">): Promise<boolean> =>
  unlessConflict(store.commit({ delete: [key], expect: [[key, revision]] }));
