/** Commits that travel in one transaction: who of them loses, and what the others come to. */

import { CommitConflict } from "../errors.ts";
import { counted } from "./check.ts";
import type { Commit } from "./store.ts";

/** What is left to do: `clear` first, then the rest in any order, for no key is in two of them. Sorted by key. */
export interface Changes {
  readonly clear: readonly string[];
  readonly delete: readonly string[];
  readonly put: readonly Written[];
  readonly add: readonly Written[];
}

export interface Written {
  readonly key: string;
  /** The value of `put`, the sum of what is added. */
  readonly value: string;
  readonly revision: number;
}

/** What the group has done to a row so far. */
type Fate = { kind: "put" | "add"; value: string; revision: number } | { kind: "delete" };

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
 * @param base revision of the first commit; each has one of its own
 * @returns the changes, and for each commit its revision, or why it does not happen
 */
export function foldGroup(
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
    for (const key of commit.delete ?? []) fates.set(key, { kind: "delete" });
    for (const [key, value] of commit.put ?? []) fates.set(key, { kind: "put", value, revision });
    for (const [key, delta] of commit.add ?? []) fates.set(key, added(fates.get(key), key, delta, revision));
  }

  const results = group.map((commit, index): number | Error => {
    const broken = commit.expect === undefined ? [] : commit.expect.filter((expectation) => !holds(expectation));
    if (broken.length > 0) return new CommitConflict(broken.map(([key]) => key));
    try {
      apply(commit, base + index);
    } catch (error) {
      return error as Error;
    }
    return base + index;
  });
  return { changes: changesOf(fates, cleared), results };
}

function added(fate: Fate | undefined, key: string, delta: number, revision: number): Fate {
  if (fate === undefined) return { kind: "add", value: String(delta), revision };
  if (fate.kind === "delete") return { kind: "put", value: String(delta), revision };
  return { kind: fate.kind, value: counted(key, fate.value, delta), revision };
}

/** Sorted: neighbours share a page, which is found once; and processes that write the same rows take locks in one order. */
function changesOf(fates: ReadonlyMap<string, Fate>, clear: string[]): Changes {
  const removed: string[] = [];
  const put: Written[] = [];
  const add: Written[] = [];
  for (const key of [...fates.keys()].sort()) {
    const fate = fates.get(key) as Fate;
    if (fate.kind === "delete") removed.push(key);
    else (fate.kind === "put" ? put : add).push({ key, value: fate.value, revision: fate.revision });
  }
  return { clear, delete: removed, put, add };
}
