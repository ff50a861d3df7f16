/**
 * Counts how often an execution was recovered after its process died. One that kills its process would otherwise be recovered forever,
 * and the service would never come up.
 */
import type { JournalEntry } from "../journal/entries.ts";
import type { Recovered } from "../journal/rows.ts";

/** Counts the entries that show progress. The parts of an agent's answer do not: each try of its step records them again. */
const countProgress = (entries: readonly JournalEntry[]): number => entries.filter(([kind]) => kind !== "part").length;

/**
 * The count after a further recovery.
 *
 * @param before the count after the last recovery
 */
export function countRecovery(before: Recovered, entries: readonly JournalEntry[]): Recovered {
  const progress = countProgress(entries);
  if (progress === before.progress) return { times: before.times + 1, progress };
  // An `interrupt` says that the last process stopped cleanly.
  return { times: entries.at(-1)?.[0] === "interrupt" ? 0 : 1, progress };
}

export const stoppedProcessMessage = ({ times }: Recovered): string =>
  `stopped its process ${times} ${times === 1 ? "time" : "times"}`;
