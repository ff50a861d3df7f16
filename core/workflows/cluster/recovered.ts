/**
 * How often an execution was taken up after its process died. One that kills its process would be taken up for ever, and with it the
 * service would never come up.
 */
import type { JournalEntry } from "../journal/entries.ts";
import type { Recovered } from "../journal/rows.ts";

/** Entries that say how far it has come. The parts of an agent's answer come again with each try of its step. */
const countProgress = (entries: readonly JournalEntry[]): number => entries.filter(([kind]) => kind !== "part").length;

/**
 * The count with this recovery in it.
 *
 * @param before as the last recovery left it
 */
export function countRecovery(before: Recovered, entries: readonly JournalEntry[]): Recovered {
  const progress = countProgress(entries);
  if (progress === before.progress) return { times: before.times + 1, progress };
  // What the last process recorded is that it stopped cleanly.
  return { times: entries.at(-1)?.[0] === "interrupt" ? 0 : 1, progress };
}

export const stoppedProcessMessage = ({ times }: Recovered): string =>
  `stopped its process ${times} ${times === 1 ? "time" : "times"}`;
