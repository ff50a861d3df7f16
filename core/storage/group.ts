/** Merges the commits of one transaction: finds those that conflict, and combines the changes of the others. */
import { CommitConflict } from "../lib/errors.ts";
import { addToCounter } from "./keys.ts";
import type { Commit } from "./store.ts";

/** The combined changes: `clear` goes first, then the rows in any order, since every key occurs once. Sorted by key. */
export interface Changes {
  readonly clear: readonly string[];
  readonly rows: readonly Change[];
}

export interface Change {
  readonly key: string;
  readonly kind: "put" | "add" | "delete";
  /** The value of `put`, the sum of `add`, or empty for `delete`. */
  readonly value: string;
  /** Without meaning for a deleted row. */
  readonly revision: number;
}

/** The keys whose revisions `mergeCommits` needs. */
export function expectedKeys(group: readonly Commit[]): string[] {
  const keys = new Set<string>();
  for (const { expect } of group) if (expect !== undefined) for (const [key] of expect) keys.add(key);
  return [...keys];
}

/**
 * Merges a group into its changes, one commit after the other. A later commit sees the changes of the earlier ones: nobody can know the
 * new revision of a row that one of them wrote, so that any expectation of it conflicts. A commit that conflicts changes nothing.
 *
 * @param stored revisions of the expected keys before the group; null, or nothing, for those that do not exist
 * @param base revision of the first commit. The others have the same one, except that a commit that writes a row of an earlier commit
 *   gets the next revision
 * @returns the changes, and for each commit its revision or its error
 */
export function mergeCommits(
  group: readonly Commit[],
  stored: ReadonlyMap<string, number | null>,
  base: number,
): { changes: Changes; results: (number | Error)[] } {
  const changes = new Map<string, Change>();
  const cleared: string[] = [];

  function matches([key, wanted]: readonly [string, number | null]): boolean {
    const change = changes.get(key);
    if (change !== undefined) return change.kind === "delete" && wanted === null;
    if (cleared.some((prefix) => key.startsWith(prefix))) return wanted === null;
    return (stored.get(key) ?? null) === wanted;
  }

  function apply(commit: Commit, revision: number): void {
    // First, since it may throw, and must not leave half of the commit behind.
    const removed = new Set(commit.delete);
    for (const [key, delta] of commit.add ?? []) {
      const isRemoved = removed.has(key) || commit.clear?.some((prefix) => key.startsWith(prefix));
      if (!isRemoved) addToChange(changes.get(key), key, delta, revision);
    }
    for (const prefix of commit.clear ?? []) {
      for (const key of changes.keys()) if (key.startsWith(prefix)) changes.delete(key);
      cleared.push(prefix);
    }
    for (const key of commit.delete ?? []) changes.set(key, { key, kind: "delete", value: "", revision });
    for (const [key, value] of commit.put ?? []) changes.set(key, { key, kind: "put", value, revision });
    for (const [key, delta] of commit.add ?? []) changes.set(key, addToChange(changes.get(key), key, delta, revision));
  }

  let revision = base;
  const results = group.map((commit): number | Error => {
    if (commit.expect?.every(matches) === false)
      return new CommitConflict(commit.expect.filter((each) => !matches(each)).map(([key]) => key));
    if (cleared.length > 0 || rewrites(commit, changes)) revision++;
    try {
      apply(commit, revision);
    } catch (error) {
      return error as Error;
    }
    return revision;
  });
  // Sorted, so that neighbouring rows find their page in the file once, and processes that write the same rows lock them in one order.
  const rows = [...changes.keys()].sort().map((key) => changes.get(key) as Change);
  return { changes: { clear: cleared, rows }, results };
}

/** Whether it writes a row that an earlier commit put or deleted. With the same revision the two writes could not be told apart. */
function rewrites({ put = [], add = [] }: Commit, changes: ReadonlyMap<string, Change>): boolean {
  for (const rows of [put, add]) {
    for (const [key] of rows) {
      const change = changes.get(key);
      if (change !== undefined && change.kind !== "add") return true;
    }
  }
  return false;
}

function addToChange(change: Change | undefined, key: string, delta: number, revision: number): Change {
  if (change === undefined) return { key, kind: "add", value: String(delta), revision };
  if (change.kind === "delete") return { key, kind: "put", value: String(delta), revision };
  return { key, kind: change.kind, value: addToCounter(key, change.value, delta), revision };
}
