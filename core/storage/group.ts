/** Commits that travel in one transaction: who of them loses, and what the others come to. */

import { CommitConflict } from "../lib/errors.ts";
import { addToCounter } from "./check.ts";
import type { Commit } from "./store.ts";

/** What is left to do: `clear` first, then the rows in any order, for no key is there twice. Sorted by key. */
export interface Changes {
  readonly clear: readonly string[];
  readonly rows: readonly Change[];
}

export interface Change {
  readonly key: string;
  readonly kind: "put" | "add" | "delete";
  /** The value of `put`, the sum of what is added, or empty. */
  readonly value: string;
  /** Nobody asks for that of a row which is deleted. */
  readonly revision: number;
}

/** What the group has done to a row so far. */
type Fate = Change;

/** Keys whose revisions `foldGroup` must be told. */
export function expectedKeys(group: readonly Commit[]): string[] {
  const keys = new Set<string>();
  for (const { expect } of group) if (expect !== undefined) for (const [key] of expect) keys.add(key);
  return [...keys];
}

/**
 * Folds a group into its changes, one commit after the other. A later one sees what the earlier ones did: a row that one of
 * them wrote has a revision which nobody can know yet, so that expecting any loses. A loser is as if it had never been there.
 *
 * @param stored revisions of the expected keys before the group; none for a row that does not exist
 * @param base revision of the first commit. The others have the same, but for those that write what an earlier one wrote: at
 *   most one more for each
 * @returns the changes, and for each commit its revision, or why it does not happen
 */
export function mergeCommits(
  group: readonly Commit[],
  stored: ReadonlyMap<string, number>,
  base: number,
): { changes: Changes; results: (number | Error)[] } {
  const fates = new Map<string, Fate>();
  const cleared: string[] = [];

  function holds([key, wanted]: readonly [string, number | null]): boolean {
    const fate = fates.get(key);
    if (fate !== undefined) return fate.kind === "delete" && wanted === null;
    if (cleared.some((prefix) => key.startsWith(prefix))) return wanted === null;
    return (stored.get(key) ?? null) === wanted;
  }

  function apply(commit: Commit, revision: number): void {
    // Before anything changes: what throws must leave the others as they were.
    for (const [key, delta] of commit.add ?? []) added(fates.get(key), key, delta, revision);
    for (const prefix of commit.clear ?? []) {
      for (const key of fates.keys()) if (key.startsWith(prefix)) fates.delete(key);
      cleared.push(prefix);
    }
    for (const key of commit.delete ?? []) fates.set(key, { key, kind: "delete", value: "", revision });
    for (const [key, value] of commit.put ?? []) fates.set(key, { key, kind: "put", value, revision });
    for (const [key, delta] of commit.add ?? []) fates.set(key, added(fates.get(key), key, delta, revision));
  }

  let revision = base;
  const results = group.map((commit): number | Error => {
    const broken = commit.expect === undefined ? [] : commit.expect.filter((expectation) => !holds(expectation));
    if (broken.length > 0) return new CommitConflict(broken.map(([key]) => key));
    if (cleared.length > 0 || rewrites(commit, fates)) revision++;
    try {
      apply(commit, revision);
    } catch (error) {
      return error as Error;
    }
    return revision;
  });
  // Neighbours share a page, which is found once; and processes that write the same rows take locks in one order.
  const rows = [...fates.keys()].sort().map((key) => fates.get(key) as Change);
  return { changes: { clear: cleared, rows }, results };
}

/** Whether it writes a row that an earlier one put or deleted: under the same revision, that one could not tell. */
function rewrites({ put = [], add = [] }: Commit, fates: ReadonlyMap<string, Fate>): boolean {
  for (const rows of [put, add]) {
    for (const [key] of rows) {
      const fate = fates.get(key);
      if (fate !== undefined && fate.kind !== "add") return true;
    }
  }
  return false;
}

function added(fate: Fate | undefined, key: string, delta: number, revision: number): Fate {
  if (fate === undefined) return { key, kind: "add", value: String(delta), revision };
  if (fate.kind === "delete") return { key, kind: "put", value: String(delta), revision };
  return { key, kind: fate.kind, value: addToCounter(key, fate.value, delta), revision };
}
