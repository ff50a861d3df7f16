/** The store of `memory:`, which ends with the process. Commits are applied synchronously, so that they are atomic. */
import { CommitConflict } from "../lib/errors.ts";
import { addToCounter, checkCommit, checkRange, checkTail } from "./check.ts";
import { checkKey } from "./encoding.ts";
import { excerpt, joinRows } from "./packed.ts";
import { SortedRows } from "./sorted-rows.ts";
import type { Commit, Store } from "./store.ts";

export function createMemoryStore(): Store {
  const rows = new SortedRows();
  /** Rises with every commit, so that a row that is deleted and written again gets another revision. */
  let revision = 0;

  function apply(commit: Commit): number {
    checkCommit(commit);
    const conflicts = (commit.expect ?? []).filter(([key, wanted]) => (rows.get(key)?.revision ?? null) !== wanted);
    if (conflicts.length > 0) throw new CommitConflict(conflicts.map(([key]) => key));
    const removed = new Set(commit.delete);
    for (const prefix of commit.clear ?? []) for (const key of rows.keys(prefix)) removed.add(key);
    // First, since it may throw, and must not leave half of the commit behind.
    for (const [key, delta] of commit.add ?? []) {
      addToCounter(key, (removed.has(key) ? undefined : rows.get(key)?.value) ?? "0", delta);
    }
    revision++;
    for (const key of removed) rows.delete(key);
    for (const [key, value] of commit.put ?? []) rows.set({ key, value, revision });
    for (const [key, delta] of commit.add ?? []) {
      rows.set({ key, value: addToCounter(key, rows.get(key)?.value ?? "0", delta), revision });
    }
    return revision;
  }

  return {
    kind: "memory",
    get: async (key) => {
      checkKey(key);
      return rows.get(key);
    },
    getMany: async (keys, longest = Number.POSITIVE_INFINITY) => {
      keys.forEach(checkKey);
      return keys.map((key) => {
        const row = rows.get(key);
        return row && excerpt(row, longest);
      });
    },
    scan: async (range) => {
      checkRange(range);
      const { longest } = range;
      const found = rows.scan(range);
      return longest === undefined ? found : found.map((row) => excerpt(row, longest));
    },
    tail: async (tail) => {
      checkTail(tail);
      const found = rows.scan({ ...tail, reverse: true });
      return joinRows(found.reverse(), tail, rows.get(tail.otherKey));
    },
    commit: async (commit) => apply(commit),
    held: (space) => rows.bytes(space),
    problem: async () => null,
    close: async () => {},
  };
}
